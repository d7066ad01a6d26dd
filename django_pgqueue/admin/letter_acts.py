"""What people can do with dead letters: redrive, set aside, delete."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from django import forms
from django.contrib.admin.models import DELETION
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_pgqueue.admin.acts import Act, Confirm, Outcome, ReasonForm, Work
from django_pgqueue.bounds import QUEUE_NAME
from django_pgqueue.tasks import operate
from django_pgqueue.worker.queue_names import unknown_queue

GONE = gettext_lazy(
    "%(count)d had already gone: redriven, purged, or being moved just now."
)

# Jobs that a message names.
HOLDERS_SHOWN = 5


class QueueForm(forms.Form):
    """The name of a queue; one that does not exist yet needs a tick."""

    queue = forms.CharField(
        label=gettext_lazy("Queue"), max_length=63, widget=forms.TextInput
    )
    is_new = forms.BooleanField(label=gettext_lazy("This queue is new"), required=False)

    def clean_queue(self) -> str:
        """Refuse what is no name of a queue."""
        queue: str = self.cleaned_data["queue"]
        if not QUEUE_NAME.fullmatch(queue):
            raise ValidationError(
                _(
                    "%(queue)s is no queue name: 1 to 63 letters, digits, '_', '.' and "
                    "'-', the first no '.' or '-'."
                ),
                params={"queue": queue},
            )
        return queue

    def clean(self) -> dict[str, Any]:
        """Ask which queue was meant, where there is none of that name."""
        cleaned: dict[str, Any] = super().clean() or {}
        name = cleaned.get("queue")
        problem = None if name is None or cleaned["is_new"] else unknown_queue(name)
        if problem is not None:
            self.add_error("queue", problem)
        return cleaned


def _redrive(work: Work) -> list[Any]:
    """Send dead letters back, to their queues or all to one; say what holds others."""
    done = operate.redrive(work.rows, queue=work.data.get("queue"))
    rest = sorted({*work.rows} - {*done})
    held = operate.key_holders(rest) if rest else {}
    return [done, {key: [holder] for key, holder in held.items()}]


def _redriven(row: Any, values: dict[str, Any]) -> str:
    """Note where it went: to a queue that was named, or back to its own."""
    names = {"queue": values.get("queue") or row.queue, "before": row.queue}
    if names["queue"] == row.queue:
        return _('Redriven to queue "%(queue)s".') % names
    return _('Redriven to queue "%(queue)s"; it was in "%(before)s".') % names


def _numbered(jobs: Iterable[Any]) -> str:
    return ", ".join(f"#{job}" for job in sorted({*jobs})[:HOLDERS_SHOWN])


HELD = Outcome(
    ngettext_lazy(
        "%(count)d stays a dead letter, since a live job has its dedup key: %(names)s.",
        "%(count)d stay dead letters, since live jobs have their dedup keys: "
        "%(names)s.",
        "count",
    ),
    is_left=True,
    names=_numbered,
)

REDRIVE = Act(
    name="redrive",
    permissions=("retry",),
    label=gettext_lazy("Redrive"),
    help=gettext_lazy("Back to its queue, with the same id, from attempt 1 on."),
    run=_redrive,
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d dead letter went back to its queue.",
                "%(count)d dead letters went back to their queues.",
                "count",
            ),
            _redriven,
        ),
        HELD,
    ],
    left=GONE,
)

REDRIVE_TO = replace(
    REDRIVE,
    name="redrive-to",
    label=gettext_lazy("Redrive to another queue"),
    help=gettext_lazy("As redrive, to a queue that you name."),
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d dead letter went to queue %(queue)s.",
                "%(count)d dead letters went to queue %(queue)s.",
                "count",
            ),
            _redriven,
        ),
        HELD,
    ],
    form=QueueForm,
    warning=gettext_lazy(
        "They go to the queue that you name, with the same ids, from attempt 1 on. "
        "Look first whether a worker takes jobs from it."
    ),
)

SET_ASIDE = Act(
    name="set-aside",
    permissions=("cancel",),
    label=gettext_lazy("Set aside"),
    help=gettext_lazy("To the archive as cancelled: nobody needs it any more."),
    run=lambda work: [
        operate.set_aside(work.rows, by=work.by, reason=work.data["reason"])
    ],
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d dead letter was set aside, to the archive.",
                "%(count)d dead letters were set aside, to the archive.",
                "count",
            ),
            gettext_lazy("Set aside, to the archive: %(reason)s"),
        )
    ],
    left=GONE,
    form=ReasonForm,
    warning=gettext_lazy(
        "They go to the archive as cancelled, with your name and the reason, and are "
        "deleted with the archive. From there, they cannot be redriven."
    ),
)

DELETE = Act(
    name="purge",
    permissions=("purge",),
    label=gettext_lazy("Delete"),
    help=gettext_lazy("For ever, with its arguments and errors."),
    run=lambda work: [operate.delete_dead_letters(work.rows)],
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d dead letter was deleted.",
                "%(count)d dead letters were deleted.",
                "count",
            ),
            gettext_lazy("Deleted."),
            DELETION,
        )
    ],
    left=GONE,
    form=Confirm,
    warning=gettext_lazy("They are deleted for ever, with their arguments and errors."),
    is_grave=True,
)
