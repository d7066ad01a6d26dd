"""What the doctor asks of jobs, workers, depths and schedules."""

from __future__ import annotations

from collections.abc import Iterator

from django_pgqueue.bounds import PULL_TASK
from django_pgqueue.conf import Settings
from django_pgqueue.operators.findings import (
    COMPENSATING_MAX,
    DEAD_LETTERS_MAX,
    DEAD_LETTERS_PERIOD,
    FAILURES_MAX,
    NAMES_MAX,
    START_FOR,
    Finding,
    finding,
    named,
    of_dead_letters,
    of_queues,
    of_sagas,
    of_schedules,
    of_versions,
    of_workers,
)
from django_pgqueue.operators.human import age, duration, share
from django_pgqueue.operators.paging import STATEMENT_SECONDS_MAX
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.limits import Plans, limit
from django_pgqueue.queues import doctor
from django_pgqueue.queues.depth import COUNT_SECONDS_MAX, latest
from django_pgqueue.queues.reprocess import gave_up_again
from django_pgqueue.queues.stats import queue_stats
from django_pgqueue.schedules.declare import declared
from django_pgqueue.schedules.store import ScheduleRow, database_now, find_all
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.registry import failed_modules, import_problem
from django_pgqueue.worker.serving import WORKERS_MAX, plans_of
from django_pgqueue.workflows.versions import others_under_way

# A lease that ran out is taken over by the next poll.
LAPSED_SECONDS_MAX = 60.0

# Rows counted, tasks looked at.
COUNT_MAX = 10_000
TASK_ROWS_MAX = 10_000


def workers(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Do workers live, and serve every queue that has jobs to run?"""
    seen = doctor.workers_seen(cursor, limit=WORKERS_MAX)
    yield from of_workers(seen)
    plans = plans_of(seen)
    yield from of_queues(queue_stats(cursor, None), plans, settings.queue_limits)


def leases(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Are there leases that ran out and that nobody takes over?"""
    count, seconds = doctor.lapsed_leases(cursor, limit=COUNT_MAX)
    is_old = seconds is not None and seconds > LAPSED_SECONDS_MAX
    ago = "" if seconds is None else f", the first {age(seconds)} ago"
    yield Finding(
        check="leases",
        severity="warning" if is_old else "ok",
        what=f"{count:,} leases ran out and were not taken over{ago}."
        if count
        else "No lease ran out without being taken over.",
        value=count,
        limit=LAPSED_SECONDS_MAX,
        way_out="Their workers died, and no other one serves their queues: start one."
        if is_old
        else "",
    )


def modules(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Could every module that declares tasks be imported?"""
    for path, error in failed_modules().items():
        yield Finding(
            check="modules",
            severity="error",
            what=f"{import_problem(path, error)}. No worker starts.",
            value=path,
            way_out="Fix the module; the log of this command has the traceback.",
        )


def tasks(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Do jobs wait whose task nobody declares?"""
    seen = doctor.tasks_in_use(cursor, limit=TASK_ROWS_MAX)
    unknown = [name for name in seen if name not in {PULL_TASK, *registry.tasks}]
    yield finding(
        check="tasks",
        wrong=unknown,
        what=f"Jobs wait whose task is not declared here: {named(unknown)}.",
        right="Every waiting job's task is declared.",
        value=unknown[:NAMES_MAX],
        way_out="Deploy the code that has them, declare them in a module of "
        f"TASK_MODULES, or add aliases=[…] to the renamed "
        f"task; after {duration(settings.unknown_task_grace_seconds)} they are dead.",
    )


def dead_letters(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Did jobs give up lately?"""
    yield of_dead_letters(
        doctor.new_dead_letters(
            cursor, period=DEAD_LETTERS_PERIOD, limit=DEAD_LETTERS_MAX
        )
    )


def sagas(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Do sagas get on with undoing what they have done?"""
    # The steps of each by their index, whatever a workflow with most of them makes of
    # the statistics.
    limit(cursor, seconds=STATEMENT_SECONDS_MAX, plans=Plans.IN_ORDER)
    yield of_sagas(
        doctor.stuck_sagas(cursor, attempts=FAILURES_MAX, limit=COMPENSATING_MAX)
    )


def saga_versions(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Do sagas run that began with other steps than are declared now?"""
    limit(cursor, seconds=STATEMENT_SECONDS_MAX, plans=Plans.IN_ORDER)
    yield of_versions(others_under_way(cursor))


def reprocessed(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Where rules redrive dead letters: did jobs give up nevertheless?"""
    if not settings.reprocess:
        return
    count = gave_up_again(cursor, period=DEAD_LETTERS_PERIOD, limit=DEAD_LETTERS_MAX)
    yield finding(
        check="reprocessed",
        wrong=count,
        what=f"{count:,} jobs gave up again in the last 24 h, after a rule of "
        f"PGQUEUE['REPROCESS'] had redriven them.",
        right="No job gave up in the last 24 h that a rule had redriven.",
        value=count,
        limit=0,
        way_out="No rule takes them again: see what they fail of, by manage.py pgqueue "
        "dead --by error.",
    )


# From here on somebody should look, while there is room still.
NEARLY_FULL = 0.8

# What a queue that is full does.
DOES = {
    "refuse": "refuses jobs",
    "block": "lets those wait who enqueue, and then refuses jobs",
    "signal": "takes jobs all the same",
}


def queue_depth(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Does a queue hold as many jobs as it may, or soon?"""
    limits = settings.depths_max
    if not limits:
        return
    limit(cursor, seconds=COUNT_SECONDS_MAX, plans=Plans.IN_ORDER)
    depths = latest(cursor, limits)
    near = [name for name in limits if depths[name] >= NEARLY_FULL * limits[name]]
    near.sort(key=lambda name: limits[name] / (1 + depths[name]))
    worst = near[0] if near else ""
    found = settings.depth_limit(worst)
    yield finding(
        check="queue_depth",
        wrong=near,
        what="Queues hold nearly as many jobs as they may, or as many: "
        + named([f"{name} {share(depths[name], limits[name])}" for name in near])
        + ("" if found is None else f". {worst}, when full, {DOES[found.on_full]}."),
        right="Every queue with a limit has room.",
        value={name: depths[name] for name in near},
        limit={name: limits[name] for name in near},
        way_out=f"Run more workers for it, such as {START_FOR}{worst}; or raise "
        f"PGQUEUE['QUEUES'][{worst!r}]['depth_max'].",
    )


def schedules(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Are ticks issued, and is every schedule what somebody wants?"""
    rows, now = find_all(cursor), database_now(cursor)
    yield from of_schedules(rows, now)
    yield _withdrawn([row.name for row in rows if row.withdrawn_at is not None])
    yield _hidden(rows)


def _withdrawn(names: list[str]) -> Finding:
    return finding(
        check="withdrawn",
        wrong=names,
        what=f"Schedules are declared no longer, and rest: {named(names)}.",
        right="Every schedule of code is declared.",
        value=names,
        way_out="Delete them in the admin, if they are not to come back.",
    )


def _hidden(rows: list[ScheduleRow]) -> Finding:
    ours = {each.name for each in declared()}
    names = [row.name for row in rows if row.source == "user" and row.name in ours]
    return finding(
        check="hidden",
        wrong=names,
        what="Code declares schedules under names that users have taken: "
        f"{named(names)}.",
        right="No schedule of a user hides one of code.",
        value=names,
        way_out="Those of users hold. Delete them in the admin, then migrate.",
    )


EXAMINATIONS = (
    *(workers, leases, tasks, dead_letters, reprocessed, sagas, saga_versions),
    queue_depth,
)
