"""The workflows: how far each is, what comes after what, and what went wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import BooleanField, Exists, ExpressionWrapper, OuterRef, Q
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments, payload
from django_pgqueue.admin.acting import ActingAdmin, column
from django_pgqueue.admin.acts import (
    Act,
    Came,
    Confirm,
    Outcome,
    ReasonForm,
    Work,
    on_each,
)
from django_pgqueue.admin.cells import badge, narrowed
from django_pgqueue.admin.chart import Progress
from django_pgqueue.admin.keyset_list import FilterForm, choice_field, text_field
from django_pgqueue.exceptions import WorkflowNotFound
from django_pgqueue.live_states import LIVE_WORKFLOWS
from django_pgqueue.models import Step, Workflow
from django_pgqueue.models.workflow import StepState, WorkflowKind, WorkflowState
from django_pgqueue.operators.workflows import (
    ID_MAX,
    WORKFLOW_COLUMNS,
    WORKFLOWS,
    batches_of,
    ended,
    is_live,
    is_of_other_steps,
    of_id,
    of_id_or_key,
    progress,
)


class RestartForm(Confirm):
    """From which step on."""

    step = forms.IntegerField(
        label=_("From the step"),
        required=False,
        min_value=1,
        max_value=ID_MAX,
        help_text=_(
            "The id of its job. It runs again, with all that comes after it. Empty: "
            "only what has not succeeded runs."
        ),
    )


def _cancel(row: Any, work: Work) -> Any:
    """Cancel a workflow; some go on until what runs has stopped, or is undone."""
    from django_pgqueue.tasks import operate_workflows as operate

    state = operate.cancel(row.pk, by=work.by)
    return state is not None and {int(state in LIVE_WORKFLOWS): ()}


def _resolve(row: Any, work: Work) -> bool:
    """Let a saga go on whose dead compensation was done by hand."""
    from django_pgqueue.tasks import operate_workflows as operate

    return bool(operate.resolve(row.pk, by=work.by, reason=work.data["reason"]))


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


def _restart(row: Any, work: Work) -> bool:
    """Start a workflow anew, with the results that it has."""
    from django_pgqueue.tasks import operate_workflows as operate

    return operate.restart(row.pk, step=work.data["step"]) is not None


def _has_dead(row: Any) -> bool:
    """Return whether a workflow has dead steps that it could go on from."""
    # A saga goes on from none, but from what undoes one.
    return bool(row.needs_human if row.kind == WorkflowKind.SAGA else row.dead)


CANCEL = Act(
    name="cancel",
    permissions=("cancel",),
    label=_("Cancel"),
    help=_("What has not started never runs; what runs is asked to stop."),
    run=on_each(_cancel, WorkflowNotFound, outcomes=2),
    outcomes=[
        Outcome(
            _("%(count)d cancelled."),
            _("Cancelled."),
        ),
        Outcome(
            _("%(count)d asked to stop, once running jobs end or a saga is undone."),
            _("Asked to stop."),
        ),
    ],
    left=_("%(count)d left: ended, or asked to stop before."),
    form=Confirm,
    warning=_(
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
    label=_("Retry the dead steps"),
    help=_("Redrives their dead letters; the workflow goes on from there."),
    run=_retry,
    outcomes=[
        Outcome(
            _("Redriven dead steps: %(count)d."),
            _("Dead steps that went back to their queues: %(names)s."),
            names=lambda steps: f"{len({*steps}):,}",
        ),
        Outcome(
            _("%(count)d left for another time: 5,000 steps are retried at once."),
            is_left=True,
        ),
    ],
    left=_("%(count)d left, without a dead step that can be redriven."),
    form=Confirm,
    warning=_(
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
    label=_("Start anew"),
    help=_("A new workflow runs what has not succeeded in this one."),
    run=on_each(_restart, LookupError),
    done=_("%(count)d started anew."),
    entry=_("Started anew, as another workflow."),
    left=_("%(count)d left: not ended, or a saga or a batch."),
    form=RestartForm,
    from_url=("step",),
    warning=_(
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
    label=_("Done by hand"),
    help=_("Sets the dead compensation aside; the saga goes on undoing."),
    run=on_each(_resolve, WorkflowNotFound),
    done=_("%(count)d resumed."),
    entry=_("A compensation was done by hand: %(reason)s"),
    left=_("%(count)d left: not waiting for anyone."),
    form=ReasonForm,
    warning=_(
        "Say so once you have undone by hand what the dead compensation was to undo. "
        "It is set aside, to the archive, with your name and the reason, and the one "
        "before it starts."
    ),
    offered=lambda row: bool(row.needs_human),
    is_grave=True,
)


# The page of one that runs is renewed so often; one with more steps is not.
LIVE_SECONDS = 5
LIVE_STEPS_MAX = 15_000

# Links to the batches in one.
BATCHES_MAX = 20

OTHER_STEPS = _("began with other steps than are declared now")


def needs_human() -> ExpressionWrapper[Any]:
    """Return whether a saga waits for somebody, since a compensation is dead."""
    dead = Step.objects.filter(
        workflow_id=OuterRef("pk"), kind="compensation", state=StepState.DEAD
    )
    return ExpressionWrapper(
        Q(state=WorkflowState.COMPENSATING) & Q(Exists(dead)), BooleanField()
    )


class PlainWorkflowFilters(FilterForm):
    """An id, a part of a name, and a state."""

    meanings = {
        **WORKFLOWS,
        # few_rows() has found all of them.
        "q": lambda text: Q(),
    }

    q = text_field(_("Id"), _("4711"))
    name = text_field(_("Name"), _("a part of it"))
    state = choice_field(_("State"), WorkflowState.choices)


class WorkflowFilters(PlainWorkflowFilters):
    """A key, too: for those who may see keys."""

    q = text_field(_("Id or key"), _("4711, or the whole key"), strip=False)


@admin.register(Workflow)
class WorkflowAdmin(ActingAdmin):
    """Each workflow, the latest first."""

    filter_form = WorkflowFilters
    change_form_template = "admin/pgqueue/workflow.html"
    computed = {"needs_human": needs_human()}
    acts = (RETRY, RESTART, RESOLVE, CANCEL)
    named_by = ("name",)
    key_columns = ("key",)
    hidden_columns = ("ends",)
    list_display = (
        *("id", "title", "state_badge", "progress_bar", "key", "took", "created_at"),
    )
    fields = (
        *("id", "name", "kind_shown", "key", "open", "created_at", "ended_at", "took"),
        *("deadline_at", "cancel_requested_at", "overdue", "before", "part_of"),
        *("batches", "its_version"),
    )
    payload_display = ("key",)
    is_live = True
    list_reads = WORKFLOW_COLUMNS

    # The list --------------------------------------------------------------------

    def filters(self, request: HttpRequest) -> FilterForm:
        """Look for a key only where the user may see keys."""
        form = WorkflowFilters if payload.may_see(request) else PlainWorkflowFilters
        return form(request.GET)

    def few_rows(self, filter_form: FilterForm) -> list[int] | None:
        """Return the one with the id that is asked for, and those with that key."""
        text = filter_form.given("q")
        if not text:
            return None
        if isinstance(filter_form, WorkflowFilters):
            return of_id_or_key(text)
        return of_id(text)

    @admin.display(description=_("name"))
    def title(self, row: Any) -> SafeString:
        """Show its name, and whether it began with other steps than are declared."""
        shown = narrowed(row.name, name=row.name)
        if not is_of_other_steps(row):
            return shown
        other = _("began with other steps")
        return format_html('{}<br><span class="quiet">{}</span>', shown, other)

    @admin.display(description=_("state"))
    def state_badge(self, row: Any) -> SafeString:
        """Show the state as a badge."""
        label: object = row.get_state_display()
        if row.state == WorkflowState.RUNNING and row.cancel_requested_at:
            label = _("running, asked to stop")
        if row.needs_human:
            label = _("compensating, needs a human")
            return badge("dead", label, "workflow-stuck")
        return badge(row.state, label, f"workflow-{row.state}")

    @admin.display(description=_("progress"))
    def progress_bar(self, row: Any) -> str:
        """Show how many of its steps have ended."""
        text = format_html('<span class="pgqueue-text">{}</span>', progress(row))
        if not is_live(row) or not row.steps:
            return text
        return format_html(
            '<progress value="{}" max="{}"></progress><br>{}',
            str(ended(row)),
            str(row.steps),
            text,
        )

    @admin.display(description=_("took"))
    def took(self, row: Any) -> str:
        """Show how long it took, or for how long it has run."""
        if is_live(row):
            return moments.since(row.created_at, row.clock)
        return moments.length(row.created_at, row.finished_at)

    # The page of one workflow ----------------------------------------------------

    heading = state_badge
    kind_shown = column(_("kind"), lambda row: row.get_kind_display())
    open = column(
        _("open"), lambda row: _("yes: steps may be added") if row.is_open else None
    )
    ended_at = column(
        _("ended"),
        lambda row: None if is_live(row) else moments.full(row.finished_at, row.clock),
    )
    overdue = column(
        _("by its deadline"), lambda row: _("yes") if row.is_overdue else None
    )

    @admin.display(description=_("restarted from"))
    def before(self, row: Any) -> str | None:
        """Lead to the workflow whose results it began with."""
        return self.link_to(Workflow, row.restarted_from)

    @admin.display(description=_("part of"))
    def part_of(self, row: Any) -> str | None:
        """Lead to the batch that it is in."""
        return self.link_to(Workflow, row.parent_id)

    @admin.display(description=_("batches in it"))
    def batches(self, row: Any) -> str | None:
        """Link to the first batches that are in a batch."""
        if row.kind != WorkflowKind.BATCH:
            return None
        found = batches_of(row.pk, BATCHES_MAX + 1)
        links = [(self.link_to(Workflow, each),) for each in found[:BATCHES_MAX]]
        more = " …" if len(found) > BATCHES_MAX else ""
        return format_html("{}{}", format_html_join(" ", "{}", links), more)

    @admin.display(description=_("version"))
    def its_version(self, row: Any) -> Any:
        """Say by which steps a saga began."""
        if not is_of_other_steps(row):
            return row.version
        return format_html("{} · {}", row.version, OTHER_STEPS)

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Add the picture, a page of the steps, and what renews both."""
        # With the page comes what draws it.
        from django_pgqueue.admin.workflow_steps import picture_and_steps

        is_renewed = is_live(row) and row.steps <= LIVE_STEPS_MAX
        may_restart = RESTART.is_permitted(request) and RESTART.offered(row)
        shown = picture_and_steps(
            self.admin_site,
            request,
            row,
            restart_at=self.act_url(request, RESTART.name, row) if may_restart else "",
        )
        return {
            **shown,
            "progress": Progress(ended(row), row.steps, progress(row))
            if row.steps
            else None,
            "live_seconds": LIVE_SECONDS if is_renewed else None,
        }
