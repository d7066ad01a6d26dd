"""What people can do with lanes: pause, resume and release them, say what they take."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_pgqueue.admin.acts import Act, Came, Confirm, Outcome, Work, pausing
from django_pgqueue.bounds import LANE_CAPACITY_MAX, LANE_WEIGHT_MAX
from django_pgqueue.operators.lanes import release_told
from django_pgqueue.operators.pausable import LANE, PERMISSION
from django_pgqueue.tasks import operate_queues as operate

Run = Callable[[Work], Sequence[Came]]


class CapacityForm(forms.Form):
    """How many jobs at a time."""

    jobs = forms.IntegerField(
        label=gettext_lazy("Jobs at a time"),
        min_value=1,
        max_value=LANE_CAPACITY_MAX,
        required=False,
        help_text=gettext_lazy("Empty: what its jobs say."),
    )


class WeightForm(forms.Form):
    """How many jobs in a turn."""

    jobs = forms.IntegerField(
        label=gettext_lazy("Jobs in a turn"),
        min_value=1,
        max_value=LANE_WEIGHT_MAX,
        required=False,
        help_text=gettext_lazy("Empty: one, as of other lanes."),
    )


def _held(run: Run) -> Run:
    """Return *run* with all lanes locked before it: two who act do not deadlock."""

    def held(work: Work) -> Sequence[Came]:
        operate.hold([row.name for row in work.rows.values()])
        return run(work)

    return held


def _set_capacity(work: Work) -> list[Any]:
    jobs = work.data["jobs"]
    done = [
        key for key, row in work.rows.items() if operate.set_capacity(row.name, jobs)
    ]
    return [done, []] if jobs is not None else [[], done]


def _set_weight(work: Work) -> list[Any]:
    jobs = work.data["jobs"]
    done = [key for key, row in work.rows.items() if operate.set_weight(row.name, jobs)]
    return [done, []] if jobs is not None else [[], done]


def _release(work: Work) -> list[dict[str, list[int]]]:
    let_through: dict[str, list[int]] = {}
    put_off: dict[str, list[int]] = {}
    for key, row in work.rows.items():
        released = operate.release(row.name)
        if released.job is None:
            work.problems.append(f"{row}: {release_told(released, row.stats)}")
            continue
        let_through[key] = [released.job]
        if released.put_off is not None:
            put_off[key] = [released.put_off]
    return [let_through, put_off]


CAPACITY = Act(
    name="capacity",
    permissions=(PERMISSION,),
    label=gettext_lazy("Set capacity"),
    help=gettext_lazy("So many at a time, whatever its jobs say."),
    run=_held(_set_capacity),
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d lane takes %(jobs)s at a time.",
                "%(count)d lanes take %(jobs)s at a time.",
                "count",
            ),
            gettext_lazy("Capacity: %(jobs)s at a time."),
        ),
        Outcome(
            ngettext_lazy(
                "%(count)d lane takes what its jobs say.",
                "%(count)d lanes take what their jobs say.",
                "count",
            ),
            gettext_lazy("Capacity: what its jobs say."),
        ),
    ],
    left=ngettext_lazy(
        "%(count)d took so many already.", "%(count)d took so many already.", "count"
    ),
    order="name",
    form=CapacityForm,
    said=lambda row: {"jobs": row.stats.own_capacity},
    offered=lambda row: not (row.stats.is_group or row.stats.is_fair),
    warning=gettext_lazy(
        "So many of it are let through at a time, on all workers together, until "
        "somebody says otherwise. What was let through before goes on. Of a limit: a "
        "group takes one at a time."
    ),
)

WEIGHT = Act(
    name="weight",
    permissions=(PERMISSION,),
    label=gettext_lazy("Set weight"),
    help=gettext_lazy("So many of its jobs start in each of its turns."),
    run=_held(_set_weight),
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d lane has %(jobs)s in a turn.",
                "%(count)d lanes have %(jobs)s in a turn.",
                "count",
            ),
            gettext_lazy("Weight: %(jobs)s in a turn."),
        ),
        Outcome(
            ngettext_lazy(
                "%(count)d lane has one in a turn, as others have.",
                "%(count)d lanes have one in a turn, as others have.",
                "count",
            ),
            gettext_lazy("Weight: one in a turn, as others."),
        ),
    ],
    left=ngettext_lazy(
        "%(count)d had so many already.", "%(count)d had so many already.", "count"
    ),
    order="name",
    form=WeightForm,
    said=lambda row: {"jobs": row.stats.weight},
    offered=lambda row: row.stats.is_fair or not row.stats.waiting,
    warning=gettext_lazy(
        "Each time its turn comes, so many of its jobs are claimed before those of the "
        "next lane, until somebody says otherwise. Of a fair lane: others have none."
    ),
)

RELEASE = Act(
    name="release",
    permissions=(PERMISSION,),
    label=gettext_lazy("Release the next job"),
    help=gettext_lazy("Lets it through at once, one time, whatever holds it back."),
    run=_held(_release),
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d job was let through: %(names)s.",
                "%(count)d jobs were let through: %(names)s.",
                "count",
            ),
            gettext_lazy("Released: job %(names)s."),
        ),
        Outcome(
            ngettext_lazy(
                "%(count)d waits for its next attempt, and is let through after that: "
                "%(names)s.",
                "%(count)d wait for their next attempts, and are let through after "
                "those: %(names)s.",
                "count",
            ),
            gettext_lazy("Passed by: job %(names)s."),
        ),
    ],
    order="name",
    form=Confirm,
    warning=gettext_lazy(
        "Its next due job is let through at once, also while it is paused. A limit has "
        "one more at a time then, a fair lane one before its turn. A group never has: "
        "a job that waits for its next attempt is passed by until then, and one that "
        "is ready or runs is waited for."
    ),
    offered=lambda row: row.stats.waiting > 0,
)

ACTS = (
    *(dataclasses.replace(act, run=_held(act.run)) for act in pausing(LANE)),
    CAPACITY,
    WEIGHT,
    RELEASE,
)
