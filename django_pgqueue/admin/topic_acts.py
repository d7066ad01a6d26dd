"""What people can do with topics: give one another count of partitions."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_pgqueue.admin.acts import Act, Outcome, Work
from django_pgqueue.exceptions import TopicError
from django_pgqueue.log.names import PARTITIONS_MAX
from django_pgqueue.topics import operate_topics as operate


class PartitionsForm(forms.Form):
    """How many."""

    partitions = forms.IntegerField(
        label=gettext_lazy("Partitions"), min_value=1, max_value=PARTITIONS_MAX
    )


def _repartition(work: Work) -> list[Any]:
    done = []
    for key, row in work.rows.items():
        try:
            if operate.repartition(row.name, work.data["partitions"]):
                done.append(key)
        except TopicError as error:
            work.problems.append(str(error))
    return [done]


REPARTITION = Act(
    name="repartition",
    permissions=("seek",),
    label=gettext_lazy("Repartition…"),
    help=gettext_lazy("So many readers of a group can work at a time."),
    run=_repartition,
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d topic has %(partitions)d partitions now.",
                "%(count)d topics have %(partitions)d partitions now.",
                "count",
            ),
            gettext_lazy("Repartitioned: %(partitions)d partitions."),
        ),
    ],
    left=ngettext_lazy(
        "%(count)d had so many already.", "%(count)d had so many already.", "count"
    ),
    order="name",
    form=PartitionsForm,
    said=lambda row: {"partitions": row.partitions},
    warning=gettext_lazy(
        "What is published from now on goes to new partitions. Groups read the former "
        "ones to their end beside them, so that each key keeps its order; nobody "
        "waits, and nothing is lost. A halted partition holds up what shares its keys. "
        "Say the same count where code declares the topic."
    ),
)
