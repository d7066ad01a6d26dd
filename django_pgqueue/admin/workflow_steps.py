"""The steps on the page of a workflow: as a picture or counts, and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, cast

from django.contrib import admin
from django.contrib.admin import AdminSite
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import BadRequest
from django.db.models import Count, Model, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments, payload
from django_pgqueue.admin.acting import column
from django_pgqueue.admin.cells import badge, name, url_on
from django_pgqueue.admin.keyset_list import (
    FilterForm,
    KeysetList,
    PagedAdmin,
    choice_field,
    text_field,
)
from django_pgqueue.admin.workflow_graph import STEPS_DRAWN_MAX, TABLE, graph
from django_pgqueue.conf import get_settings
from django_pgqueue.live_states import UNNEEDED, state_of_step
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Step
from django_pgqueue.models.workflow import StepState
from django_pgqueue.operators.human import in_utc
from django_pgqueue.operators.paging import Keyset
from django_pgqueue.operators.workflows import (
    KINDS,
    STEP_COLUMNS,
    STEPS,
    error_of,
    label_of,
    of_id,
)
from django_pgqueue.queues import workflows
from django_pgqueue.tasks import database

# Characters of what a step was given and has returned that the table shows, each.
CHARACTERS_MAX = 1_000

# Of an error: its message has 1,000, each of which JSON may have to escape.
ERROR_CHARACTERS_MAX = 10_000

# The gravest first.
STATES = (
    *("dead", "started", "expired", "cancelled", "skipped", "waiting", UNNEEDED),
    "succeeded",
)

# Not worth showing.
NOTHING = (None, "[]", "{}", "null")

# In which table a step's job is; elsewhere() knows better where it is not.
TABLES: Mapping[str, type[Model]] = {
    "started": Job,
    "dead": DeadLetter,
    "succeeded": ArchivedJob,
    "cancelled": ArchivedJob,
    "expired": ArchivedJob,
}


class StepFilters(FilterForm):
    """An id or part of a name, and a state."""

    has_ids = True
    meanings = STEPS

    q = text_field(_("Id or name"), _("4711, or part of a name"))
    state = choice_field(_("State"), StepState.choices)


class StepList(KeysetList):
    """A page of the steps of one workflow, in the order in which they were said."""

    model_admin: WorkflowSteps

    # None is edited.
    formset = None

    def get_query_string(
        self, new_params: Any = None, remove: Iterable[str] | None = None
    ) -> str:
        """Return the URL of a page of it, and not of the top of the whole page."""
        return f"{super().get_query_string(new_params, remove)}#{TABLE}"

    def url_for_result(self, result: Any) -> str:
        """Return the page of the step's job, or else the step alone, here."""
        return self.model_admin.url_of(result)


class WorkflowSteps(PagedAdmin):
    """The steps of one workflow: part of its page, and no page of its own."""

    keyset = Keyset(("id",), is_by_time=False, within=("workflow_id",))
    filter_form = StepFilters
    actions = None
    list_display = ("number", "title", "state_badge", "began", "took", "died_of")
    list_reads = STEP_COLUMNS

    def __init__(
        self,
        site: AdminSite,
        workflow: int,
        *,
        may_see: bool,
        within: str,
        restart_at: str,
    ) -> None:
        super().__init__(Step, site)
        self.workflow = workflow
        self.may_see = may_see
        # The state of the workflow.
        self.within = within
        self.restart_at = restart_at

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that leads to jobs."""
        return StepList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the steps of the workflow, as a range of one: see Keyset.within."""
        rows = Step.objects.using(get_settings().database)
        return rows.filter(workflow_id__range=(self.workflow, self.workflow))

    def list_rows(self, request: HttpRequest, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Add errors, and, for those who may see it, what each was given and gave."""
        texts = {"error_text": payload.as_text("error", ERROR_CHARACTERS_MAX)}
        if self.may_see:
            columns = {"args": "job__args", "kwargs": "job__kwargs", "result": "result"}
            texts |= {
                f"{label}_text": payload.as_text(column, CHARACTERS_MAX)
                for label, column in columns.items()
            }
        listed: QuerySet[Any] = super().list_rows(request, rows).annotate(**texts)
        return listed

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        """Show what steps were given to those who may see payloads."""
        return (*self.list_display, "carries") if self.may_see else self.list_display

    def url_of(self, step: Any) -> str:
        """Return the page of a step's job; before it has one, the step alone, here."""
        model = TABLES.get(step.state)
        if (
            model is None
            or step.task is None
            or not self.admin_site.is_registered(model)
        ):
            return f"?q={step.pk}#{TABLE}"
        return url_on(self.admin_site, model, "change", step.pk)

    number = column(_("job"), lambda row: str(row.pk))

    @admin.display(description=_("step"))
    def title(self, step: Any) -> SafeString | str:
        """Show its name, its kind where that is none of the usual, and a way back."""
        if step.task is None:
            return name(str(_("(gather)")))
        if step.kind not in KINDS:
            return self._with_restart(step)
        return format_html(
            '{}<br><span class="quiet">{}</span>', name(step.name), KINDS[step.kind]
        )

    def _with_restart(self, step: Any) -> SafeString | str:
        if not self.restart_at:
            return name(step.name)
        return format_html(
            '{}<br><a href="{}{}step={}">{}</a>',
            name(step.name),
            self.restart_at,
            "&" if "?" in self.restart_at else "?",
            str(step.pk),
            _("start anew from here"),
        )

    @admin.display(description=_("state"))
    def state_badge(self, step: Any) -> SafeString:
        """Show the state as a badge."""
        state = state_of_step(step.state, step.kind, within=self.within)
        return badge(state, label_of(state), f"step-{state}")

    began = column(_("started"), lambda row: moments.short(row.started_at, row.clock))

    @admin.display(description=_("took"))
    def took(self, step: Any) -> SafeString | str:
        """Show how long it took from its start on, or has taken until now."""
        if step.task is None:
            return ""
        if step.state == StepState.STARTED:
            return moments.since(step.started_at, step.clock)
        return moments.length(step.started_at, step.finished_at)

    @admin.display(description=_("error"))
    def died_of(self, step: Any) -> SafeString | str:
        """Show what it died of; the message to those who may see payloads."""
        found = error_of(step.error_text)
        if found is None:
            return ""
        parts = [found.type or found.reason or _("unreadable")]
        if found.message and self.may_see:
            parts.append(found.message)
        return format_html(
            '<span class="pgqueue-text">{}</span>', ": ".join(map(str, parts))
        )

    @admin.display(description=_("carries"))
    def carries(self, step: Any) -> SafeString | str:
        """Show what it was given, and what it has returned."""
        texts = [
            (label, text, step.task if label == "args" else None)
            for label in ("args", "kwargs", "result")
            if (text := getattr(step, f"{label}_text")) not in NOTHING
        ]
        if not texts:
            return ""
        shown = [
            payload.payload(label, text, task=task, characters_max=CHARACTERS_MAX)
            for label, text, task in texts
        ]
        return format_html(
            '<details id="pgqueue-step-{}"><summary>{}</summary>{}</details>',
            str(step.pk),
            ", ".join(label for label, _text, _task in texts),
            format_html_join(
                "",
                '<h3>{}</h3><pre class="pgqueue-payload">{}{}</pre>',
                ((each.label, each.text, "…" if each.is_cut else "") for each in shown),
            ),
        )


def picture_and_steps(
    site: AdminSite, request: HttpRequest, row: Any, *, restart_at: str = ""
) -> dict[str, Any]:
    """
    Return the context of a workflow's steps: a picture or counts by state, and a table.

    Args:
        site: The links stay on its pages.
        request: Of the user who looks at them.
        row: The workflow.
        restart_at: The address that restarts it from a step; "": the user may not.

    Raises:
        BadRequest: The URL has no valid place in the table.
    """
    table = WorkflowSteps(
        site,
        row.pk,
        may_see=payload.may_see(request),
        within=row.state,
        restart_at=restart_at,
    )
    try:
        steps = cast("StepList", table.get_changelist_instance(request))
    except IncorrectLookupParameters as error:
        raise BadRequest(str(error)) from error
    counts = _states(row)
    is_drawn = counts.total() <= STEPS_DRAWN_MAX
    return {
        "graph": _picture(row, steps) if is_drawn else None,
        "states": [
            (
                f"?{urlencode({'state': _stored(state)})}#{TABLE}",
                badge(
                    state,
                    f"{counts[state]} {label_of(state)}"
                    if is_drawn
                    else label_of(state),
                    f"step-{state}",
                ),
                f"{counts[state]:,}",
            )
            for state in sorted(counts, key=_urgency)
        ],
        "cl": steps,
        "table": TABLE,
    }


def _states(row: Any) -> Counter[str]:
    """Return how many steps of a workflow are in each state, as people see it."""
    steps = Step.objects.using(get_settings().database).filter(workflow_id=row.pk)
    counts: Counter[str] = Counter()
    for state, kind, count in steps.values_list("state", "kind").annotate(Count("id")):
        counts[state_of_step(state, kind, within=row.state)] += count
    return counts


def _picture(row: Any, steps: StepList) -> Any:
    with database.cursor() as cursor:
        found = [
            each._replace(state=state_of_step(each.state, each.kind, within=row.state))
            for each in workflows.shape(cursor, row.pk)
        ]
    asked = of_id(steps.filter_form.given("q") or "")
    clock = in_utc(row.clock).timestamp()
    return graph(found, clock=clock, here=next(iter(asked), None))


def _stored(state: str) -> str:
    """Return the state that rows have which are shown in this one."""
    return StepState.WAITING if state == UNNEEDED else state


def _urgency(state: str) -> int:
    return STATES.index(state) if state in STATES else len(STATES)
