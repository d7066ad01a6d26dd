"""What people can do with workflows: cancel, retry, restart, let a saga go on."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_pgqueue.admin.acts import Act, Came, Confirm, Outcome, ReasonForm, Work
from django_pgqueue.exceptions import WorkflowNotFound
from django_pgqueue.live_states import LIVE_WORKFLOWS
from django_pgqueue.models.workflow import WorkflowKind
from django_pgqueue.operators.workflows import ID_MAX


class RestartForm(Confirm):
    """From which step on."""

    step = forms.IntegerField(
        label=gettext_lazy("From the step"),
        required=False,
        min_value=1,
        max_value=ID_MAX,
        help_text=gettext_lazy(
            "The id of its job. It runs again, with all that comes after it. Empty: "
            "only what has not succeeded runs."
        ),
    )


def _cancel(work: Work) -> list[list[int]]:
    """Cancel workflows; some go on until what runs has stopped, or is undone."""
    from django_pgqueue.tasks import operate_workflows as operate

    ended: list[int] = []
    asked: list[int] = []
    for key in work.rows:
        with contextlib.suppress(WorkflowNotFound):
            state = operate.cancel(key, by=work.by)
            if state is not None:
                (asked if state in LIVE_WORKFLOWS else ended).append(key)
    return [ended, asked]


def _resolve(work: Work) -> list[list[int]]:
    """Let sagas go on whose dead compensation was done by hand."""
    from django_pgqueue.tasks import operate_workflows as operate

    done = []
    for key in work.rows:
        with contextlib.suppress(WorkflowNotFound):
            if operate.resolve(key, by=work.by, reason=work.data["reason"]):
                done.append(key)
    return [done]


def _retry(work: Work) -> list[Came]:
    """Redrive the dead letters of workflows, of so many steps together."""
    from django_pgqueue.tasks import operate_workflows as operate

    done: dict[int, Sequence[int]] = {}
    put_off: list[int] = []
    room = operate.RETRIED_STEPS_MAX
    for key in work.rows:
        if room <= 0:
            put_off.append(key)
            continue
        with contextlib.suppress(WorkflowNotFound):
            if found := operate.retry(key, limit=room).done:
                done[key] = found
                room -= len(found)
    return [done, put_off]


def _restart(work: Work) -> list[list[int]]:
    """Start workflows anew, with the results that they have."""
    from django_pgqueue.tasks import operate_workflows as operate

    done = []
    for key in work.rows:
        try:
            if operate.restart(key, step=work.data["step"]) is not None:
                done.append(key)
        except WorkflowNotFound:
            pass  # It is told as one that was left.
        except LookupError as error:
            work.problems.append(str(error))
    return [done]


def _has_dead(row: Any) -> bool:
    """Return whether a workflow has dead steps that it could go on from."""
    # A saga goes on from none, but from what undoes one.
    return bool(row.needs_human if row.kind == WorkflowKind.SAGA else row.dead)


CANCEL = Act(
    name="cancel",
    permissions=("cancel",),
    label=gettext_lazy("Cancel"),
    help=gettext_lazy("What has not started never runs; what runs is asked to stop."),
    run=_cancel,
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d workflow was cancelled.",
                "%(count)d workflows were cancelled.",
                "count",
            ),
            gettext_lazy("Cancelled."),
        ),
        Outcome(
            ngettext_lazy(
                "%(count)d goes on until its jobs that run have stopped, or what a "
                "saga has done is undone.",
                "%(count)d go on until their jobs that run have stopped, or what a "
                "saga has done is undone.",
                "count",
            ),
            gettext_lazy("Asked to stop."),
        ),
    ],
    left=ngettext_lazy(
        "%(count)d had ended, or was asked to stop before.",
        "%(count)d had ended, or were asked to stop before.",
        "count",
    ),
    form=Confirm,
    warning=gettext_lazy(
        "Steps that have not started never run, and their jobs go to the archive as "
        "cancelled. A job that runs is asked to stop: its task ends by itself where it "
        "looks at context.cancelled, or at its next await. Nothing comes after it but, "
        "of a saga, the compensations of what it has done."
    ),
    offered=lambda row: row.state == "running" and row.cancel_requested_at is None,
    is_grave=True,
)

RETRY = Act(
    name="retry-dead",
    permissions=("retry",),
    label=gettext_lazy("Retry the dead steps"),
    help=gettext_lazy("Redrives their dead letters; the workflow goes on from there."),
    run=_retry,
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d dead step went back to its queue.",
                "%(count)d dead steps went back to their queues.",
                "count",
            ),
            gettext_lazy("Dead steps that went back to their queues: %(names)s."),
            names=lambda steps: f"{len({*steps}):,}",
        ),
        Outcome(
            ngettext_lazy(
                "%(count)d was left for another time: so many steps are retried at "
                "once.",
                "%(count)d were left for another time: so many steps are retried at "
                "once.",
                "count",
            ),
            is_left=True,
        ),
    ],
    left=ngettext_lazy(
        "%(count)d workflow has no dead step that can go back to its queue.",
        "%(count)d workflows have no dead step that can go back to its queue.",
        "count",
    ),
    form=Confirm,
    warning=gettext_lazy(
        "The dead letters of its steps go back to their queues, with the same ids, "
        "from attempt 1 on; at most 5,000 at a time. What waits for them runs once "
        "they have succeeded. What was called by on_error is not called back. "
        "Of a saga, the compensation that is dead goes back."
    ),
    offered=_has_dead,
)

RESTART = Act(
    name="restart",
    permissions=("retry",),
    label=gettext_lazy("Start anew"),
    help=gettext_lazy("A new workflow runs what has not succeeded in this one."),
    run=_restart,
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d workflow was started anew.",
                "%(count)d workflows were started anew.",
                "count",
            ),
            gettext_lazy("Started anew, as another workflow."),
        )
    ],
    left=ngettext_lazy(
        "%(count)d goes on, or is a saga or a batch.",
        "%(count)d go on, or are sagas or batches.",
        "count",
    ),
    form=RestartForm,
    from_url=("step",),
    warning=gettext_lazy(
        "A new workflow begins with the results that this one has, and runs all else. "
        "It takes over the key. This one stays as it is, with its dead letters: where "
        "the cause of these is gone, retry them instead."
    ),
    offered=lambda row: (
        row.state in ("succeeded", "failed", "cancelled")
        and row.kind in (WorkflowKind.CANVAS, WorkflowKind.FLOW)
    ),
)

RESOLVE = Act(
    name="resolve",
    permissions=("cancel",),
    label=gettext_lazy("Done by hand"),
    help=gettext_lazy("Sets the dead compensation aside; the saga goes on undoing."),
    run=_resolve,
    outcomes=[
        Outcome(
            ngettext_lazy("%(count)d saga goes on.", "%(count)d sagas go on.", "count"),
            gettext_lazy("A compensation was done by hand: %(reason)s"),
        )
    ],
    left=ngettext_lazy(
        "%(count)d waits for nobody.", "%(count)d wait for nobody.", "count"
    ),
    form=ReasonForm,
    warning=gettext_lazy(
        "Say so once you have undone by hand what the dead compensation was to undo. "
        "It is set aside, to the archive, with your name and the reason, and the one "
        "before it starts."
    ),
    offered=lambda row: bool(row.needs_human),
    is_grave=True,
)
