"""The runs of pipeline jobs: how far they are, what came of them, and the next one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.core.exceptions import BadRequest
from django.db.models import Case, F, Q, TextField, Value, When
from django.db.models.functions import Cast, Left, Now
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgqueue.admin import moments, payload
from django_pgqueue.admin.acting import ActingAdmin, Fact, column, limited
from django_pgqueue.admin.acts import Act, Confirm, Outcome, Work, log, may, on_each
from django_pgqueue.admin.cells import badge, name
from django_pgqueue.admin.chart import CHARACTERS_MAX, RunProgress, read_run_progress
from django_pgqueue.admin.keyset_list import FilterForm, choice_field, text_field
from django_pgqueue.admin.run_permissions import RUN, RUN_TASK, may_run
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.models import Job, PipelineRun
from django_pgqueue.models.pipeline import RunState
from django_pgqueue.operators.filters import equal, id_or, part_of
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.queues.stats import QueueStats, queue_stats
from django_pgqueue.redaction.names import PLACEHOLDER
from django_pgqueue.tasks import database
from django_pgqueue.tasks.registry import find_task
from django_pgqueue.tasks.task import Task
from django_pgqueue.worker.serving import is_served, living_plans

DEFAULT_QUEUE = "default"

# Jobs that are counted.
JOBS_COUNTED_MAX = 100


@dataclass(frozen=True, slots=True)
class Standing:
    """
    How the queue of the pipeline stands.

    Attributes:
        queue: Its name.
        is_served: Whether a living worker takes jobs from it.
        has_pyspark: Whether this process could import it; a worker may differ.
        stats: What waits and runs in it.
    """

    queue: str
    is_served: bool
    has_pyspark: bool
    stats: QueueStats

    @property
    def jobs(self) -> int:
        """How many runs were asked for and have not ended."""
        stats = self.stats
        return stats.ready + stats.running + stats.retrying + stats.scheduled


def standing() -> Standing:
    """Return how the queue of the pipeline stands now."""
    queue = find_task(RUN_TASK).options.queue or DEFAULT_QUEUE
    with database.cursor() as cursor:
        plans = living_plans(cursor)
        (stats,) = queue_stats(cursor, [queue], JOBS_COUNTED_MAX)
    return Standing(
        queue=queue,
        is_served=is_served(queue, plans),
        has_pyspark=find_spec("pyspark") is not None,
        stats=stats,
    )


def enqueue_run(job: str, options: Mapping[str, Any]) -> int:
    """
    Store the job that runs the pipeline job *job*, and return its id.

    Args:
        job: Its name.
        options: Of it; what is None is left to the default, which is None as well.

    Raises:
        SparkOptionError: No such job is declared here, it takes no such option, or the
            settings do not let it write there.
    """
    from django_pgqueue.spark.job import check_destinations, find_job_for_queue

    declared = find_job_for_queue(job)
    given = declared.read_options(options)
    check_destinations(declared, given, get_settings().destinations)
    said = {name: given[name] for name in options if given[name] is not None}
    task = find_task(RUN_TASK)
    assert isinstance(task, Task)
    return int(task.delay(job, **said).id)


def _run_again(work: Work) -> list[dict[int, list[int]]]:
    """Enqueue runs with the same options; of equal ones, one."""
    from django_pgqueue.spark.job import find_job_for_queue

    found: dict[str, tuple[int, int]] = {}
    for key, row in work.rows.items():
        options = json.dumps(row.options, sort_keys=True)
        same = f"{row.job} {options}"
        if same in found:
            continue
        if PLACEHOLDER in options:
            problem = _(
                "%(run)s was not asked for again: its options have a secret, which is "
                "not kept. Use Run… instead."
            )
            work.problems.append(problem % {"run": row})
            continue
        try:
            if not may_run(work.request, find_job_for_queue(row.job)):
                problem = _(
                    "%(run)s was not asked for again: it takes out rows that you may "
                    "not view."
                )
                work.problems.append(problem % {"run": row})
                continue
            given = row.options if isinstance(row.options, dict) else {}
            found[same] = key, enqueue_run(row.job, given)
        except SparkOptionError as error:
            problem = _("%(run)s was not asked for again: %(error)s")
            work.problems.append(problem % {"run": row, "error": error})
    return [{key: [job] for key, job in found.values()}]


def _stop(row: Any, work: Work) -> Any:
    """Ask a live run to stop; one whose process has died is lost."""
    if row.cancel_requested_at is not None:
        return None
    with database.cursor() as cursor:
        found = pipelines.request_stop(cursor, row.job, by=work.by, run=row.pk)
    return found and {int(found[1]): ()}


RUN_AGAIN = Act(
    name="run-again",
    permissions=(RUN,),
    label=gettext_lazy("Run again"),
    help=gettext_lazy("Enqueues a run with the same options."),
    run=_run_again,
    done=gettext_lazy("%(count)d started, by job %(names)s."),
    entry=gettext_lazy("Run again, by job %(names)s."),
    form=Confirm,
    warning=gettext_lazy(
        "A job of the queue runs it with the same options, as soon as no other run of "
        "the same pipeline job is live."
    ),
    offered=lambda row: row.shown_state != "running",
)

STOP = Act(
    name="stop",
    permissions=(RUN,),
    label=gettext_lazy("Stop"),
    help=gettext_lazy("Asks it to end; it writes no more results."),
    run=on_each(_stop, outcomes=2),
    outcomes=[
        Outcome(
            gettext_lazy("%(count)d asked to stop, within seconds."),
            gettext_lazy("Asked to stop."),
        ),
        Outcome(
            gettext_lazy("%(count)d lost: the process has died."),
            gettext_lazy("Asked to stop."),
            is_left=True,
        ),
    ],
    left=gettext_lazy("%(count)d left: ended, or asked already."),
    form=Confirm,
    warning=gettext_lazy(
        "It ends within seconds, as cancelled, and writes no more results. Files that "
        "Spark is writing are left as Spark leaves them."
    ),
    offered=lambda row: (
        row.shown_state == "running" and row.cancel_requested_at is None
    ),
    is_grave=True,
)


if TYPE_CHECKING:
    from django_pgqueue.admin.run_form import RunForm

# A page with a live run is renewed so often; a run notes its progress every two.
LIVE_SECONDS = 5

# Links that a page makes of what a run has noted lead to Spark, and run no script.
SCHEMES = ("http://", "https://")


def shown_state() -> Case:
    """Return the state of a run by the database's clock: lost where its process is."""
    return Case(
        When(
            Q(state=RunState.RUNNING) & Q(lease_until__lt=Now()),
            then=Value(RunState.LOST.value),
        ),
        default=F("state"),
    )


class RunFilters(FilterForm):
    """A part of the job's name, or the id of a run; and a state."""

    has_ids = True
    meanings = {
        "q": id_or(part_of("job")),
        "state": equal("shown_state"),
    }

    q = text_field(gettext_lazy("Id or pipeline job"), characters=100)
    state = choice_field(gettext_lazy("State"), RunState.choices)


@admin.register(PipelineRun)
class PipelineRunAdmin(ActingAdmin):
    """Each run of a pipeline job, the latest first."""

    filter_form = RunFilters
    # The state by the clock, and the progress.
    computed = {
        "shown_state": shown_state(),
        "progress_text": Left(Cast("progress", TextField()), CHARACTERS_MAX),
    }
    hidden_columns = ("progress",)
    acts = (RUN_AGAIN, STOP)
    named_by = ("job", "options", "cancel_requested_at")
    payload_columns = ("options",)
    list_display = (
        *("number", "pipeline_job", "state_badge", "progress_bar", "rows_read"),
        *("rows_written", "rate", "took", "asked", "started"),
    )
    list_reads = (
        *("job", "state", "asked_by", "started_at", "finished_at", "lease_until"),
        *("rows_in", "rows_out", "cancel_requested_at"),
    )

    is_live = True

    # What is read ----------------------------------------------------------------

    def list_context(self, request: HttpRequest) -> dict[str, Any]:
        """Say what keeps a run waiting, and lead to the form of a new one."""
        stands = standing()
        live = self.get_queryset(request).filter(
            state="running", lease_until__gte=Now()
        )
        tools = []
        if may(request, RUN):
            tools.append((self._url(self.model, "run"), _("Run…")))
        return {
            "tools": tools,
            "stands": stands,
            "jobs_url": self._jobs_url(request, stands.queue) if stands.jobs else None,
            "live_seconds": LIVE_SECONDS if stands.jobs or live.exists() else None,
        }

    # The list --------------------------------------------------------------------

    number = column(gettext_lazy("run"), lambda row: str(row.pk))
    pipeline_job = column(gettext_lazy("pipeline job"), lambda row: name(row.job))

    @admin.display(description=gettext_lazy("state"))
    def state_badge(self, row: Any) -> SafeString:
        """Show the state as a badge."""
        label: object = RunState(row.shown_state).label
        if row.shown_state == RunState.RUNNING and row.cancel_requested_at:
            label = _("running, asked to stop")
        return badge(row.shown_state, label)

    @admin.display(description=gettext_lazy("progress"))
    def progress_bar(self, run: Any) -> SafeString | str:
        """Show how far a run is that is live."""
        if run.shown_state != RunState.RUNNING:
            return ""
        progress = read_run_progress(run.progress_text)
        bar = progress.bar()
        if bar is None:
            return name(progress.text)
        return format_html(
            '<progress value="{}" max="{}"></progress>'
            '<br><span class="pgqueue-text">{}</span>',
            str(bar.done),
            str(bar.total),
            bar.text,
        )

    rows_read = column(gettext_lazy("rows in"), lambda row: f"{row.rows_in:,}")
    rows_written = column(gettext_lazy("rows out"), lambda row: f"{row.rows_out:,}")
    rate = column(
        gettext_lazy("rate"), lambda row: read_run_progress(row.progress_text).rate
    )
    took = column(
        gettext_lazy("took"), lambda row: moments.length(row.started_at, _end(row))
    )
    asked = column(gettext_lazy("asked by"), lambda row: name(row.asked_by))
    started = column(
        gettext_lazy("started"), lambda row: moments.short(row.started_at, row.clock)
    )

    # The page of one run ---------------------------------------------------------

    heading = state_badge

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Add the error, and what renews the page of a live run."""
        is_live = row.shown_state == RunState.RUNNING
        may_see = payload.may_see(request)
        progress = read_run_progress(row.progress_text)
        return {
            "progress": progress.bar() if is_live else None,
            "has_error": bool(row.error),
            "error": payload.without_secrets(row.error or "") if may_see else "",
            "live_seconds": LIVE_SECONDS if is_live else None,
        }

    def facts(self, row: Any) -> list[Fact]:
        """Say what ran where, for whom, and what came of it."""
        progress = read_run_progress(row.progress_text)
        is_live = row.shown_state == RunState.RUNNING
        return [
            (_("Run"), str(row.pk)),
            (_("Pipeline job"), row.job),
            (_("Phase"), _phase(progress, is_live)),
            (_("Rows in"), f"{row.rows_in:,}"),
            (_("Rows out"), f"{row.rows_out:,}"),
            (_("Rate"), progress.rate),
            (_("Started"), moments.full(row.started_at, row.clock)),
            (_("Ended"), moments.full(row.finished_at, row.clock)),
            (_("Took"), self.took(row)),
            (_("Asked by"), row.asked_by),
            (_("Job of the queue"), self.link_to(Job, row.queue_job_id)),
            (_("Host"), row.hostname),
            (_("Process id"), str(row.pid)),
            (_("Spark's UI"), _ui_link(row) if is_live else None),
            (_("Last heard of"), self._silent(row)),
            (_("Asked to stop"), moments.full(row.cancel_requested_at, row.clock)),
            (_("Asked to stop by"), row.cancel_requested_by),
        ]

    def _silent(self, row: Any) -> str | None:
        """Return what became of a run that nobody has called lost yet."""
        if row.state != RunState.RUNNING or row.shown_state != RunState.LOST:
            return None
        return _(
            "It is silent: its process died, or cannot reach the database. The next "
            "run of the job takes its place."
        )

    # Run… ------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        """Add the form of a new run, before whatever takes any text for an id."""
        form = self.own_url("run", self._run, (RUN,), of_row=False)
        return [form, *super().get_urls()]

    def _run(self, request: HttpRequest) -> HttpResponse:
        """Show the pipeline jobs; of one, the form of its options; or enqueue it."""
        # With these, Spark's modules come: when the page is asked for, and not before.
        from django_pgqueue.admin.run_form import RunForm
        from django_pgqueue.spark.job import find_job_for_queue

        with limited():
            stands = standing()
            chosen = request.GET.get("job", "")
            if not chosen:
                return self._choose(request, stands)
            try:
                job = find_job_for_queue(chosen)
            except SparkOptionError as error:
                raise BadRequest(str(error)) from error
            self.require(request, may_run(request, job))
            form = RunForm(job, request.POST if request.method == "POST" else None)
            if form.is_valid():
                return self._enqueue(request, job.name, form)
            return self.form_page(
                request,
                form,
                title=_("Run %(job)s") % {"job": job.name},
                told=job.summary,
                stands=stands,
                submits=[("", _("Run"))],
                back=self._url(self.model, "run"),
            )

    def _choose(self, request: HttpRequest, stands: Standing) -> HttpResponse:
        from django_pgqueue.spark.job import declared_jobs

        context = {
            **self.page_context(request),
            "title": _("Run a pipeline job"),
            "stands": stands,
            "jobs": [
                (job.name, job.summary)
                for job in declared_jobs()
                if job.in_queue and may_run(request, job)
            ],
        }
        return TemplateResponse(request, "admin/pgqueue/run.html", context)

    def _enqueue(self, request: HttpRequest, job: str, form: RunForm) -> HttpResponse:
        id_ = enqueue_run(job, form.options)
        rows = Job.objects.using(get_settings().database)
        row = rows.only("task", "queue").get(pk=id_)
        log(request, [row], _("Asked for a run of %(job)s.") % {"job": job})
        text = _(
            "A run of %(job)s was asked for: job %(id)s. It is shown here once a "
            "worker has begun it."
        )
        messages.success(request, text % {"job": job, "id": id_})
        return HttpResponseRedirect(self._url(self.model, "changelist"))

    def _jobs_url(self, request: HttpRequest, queue: str) -> str | None:
        """Return the list of the jobs in *queue*, for those who may see jobs."""
        if not self.has_page(Job) or not may(request, "view_job"):
            return None
        return f"{self._url(Job, 'changelist')}?queue={queue}"


def _end(run: Any) -> Any:
    """Return when a run has ended; of a live one now, of a lost one its last word."""
    if run.finished_at is not None:
        return run.finished_at
    return min(run.clock, run.lease_until)


def _phase(progress: RunProgress, is_live: bool) -> str | None:
    return progress.text if is_live and progress.bar() is None else None


def _ui_link(row: Any) -> SafeString | str | None:
    if not row.ui_url:
        return None
    if not row.ui_url.startswith(SCHEMES):
        return str(row.ui_url)
    return format_html('<a href="{0}" rel="noreferrer">{0}</a>', row.ui_url)
