"""Jobs: who runs them, what waits, what gave up, and sagas and schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from django_pgqueue.bounds import PULL_TASK
from django_pgqueue.findings.look import (
    DEAD_LETTERS_MAX,
    DEAD_LETTERS_PERIOD,
    Look,
)
from django_pgqueue.findings.registry import (
    Finding,
    Findings,
    finding,
    listing,
    verdict,
)
from django_pgqueue.operators.human import (
    NAMES_MAX,
    age,
    duration,
    named,
    plural,
    share,
    shown,
)
from django_pgqueue.operators.lanes import queue_taken
from django_pgqueue.operators.workers import START, START_FOR
from django_pgqueue.queues import doctor, reprocess
from django_pgqueue.schedules.declare import declared
from django_pgqueue.schedules.store import ScheduleRow
from django_pgqueue.schedules.timetables import OVERDUE, state_of
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.registry import failed_modules, import_problem
from django_pgqueue.worker.serving import SILENT_SECONDS_MAX, is_alive, is_served
from django_pgqueue.workflows.versions import others_under_way

# A ready job that waits longer: too few workers, or none.
READY_SECONDS_MAX = 300.0

# A lease that ran out is taken over by the next poll.
LAPSED_SECONDS_MAX = 60.0

# Rows counted, tasks looked at.
COUNT_MAX = 10_000
TASK_ROWS_MAX = 10_000

# A compensation that has failed as often, over about a quarter of an hour, may not
# succeed by itself; and how many sagas that compensate are looked at.
FAILURES_MAX = 10
COMPENSATING_MAX = 10_000

# From here on somebody should look, while there is room still.
NEARLY_FULL = 0.8

# What a queue that is full does.
DOES = {
    "refuse": "refuses jobs",
    "block": "lets those wait who enqueue, and then refuses jobs",
    "signal": "takes jobs all the same",
}


# Workers ------------------------------------------------------------------------------


@finding("workers")
def workers(look: Look) -> Findings:
    """Do workers live?"""
    alive = [worker for worker in look.workers if is_alive(worker.silent_seconds)]
    leader = ", one of them leads" if any(worker.leads for worker in alive) else ""
    yield Finding(what=f"{len(alive)} worker processes live{leader}.", value=len(alive))


@finding("heartbeats", part="workers")
def heartbeats(look: Look) -> Findings:
    """Were all that left a row heard of lately?"""
    silent = [each for each in look.workers if not is_alive(each.silent_seconds)]
    names = [worker.name for worker in silent]
    last = age(silent[0].silent_seconds) if silent else ""
    yield verdict(
        silent,
        f"{len(silent)} workers left a row and are silent: {named(names)}, the last of "
        f"them for {last}.",
        "They were killed, or cannot reach the database. Rows of dead ones are purged "
        "by a living worker.",
        right="No worker is silent.",
        value=names,
        limit=SILENT_SECONDS_MAX,
    )


@finding("modules")
def modules(look: Look) -> Findings:
    """Could every module that declares tasks be imported?"""
    for path, error in failed_modules().items():
        yield verdict(
            True,
            f"{import_problem(path, error)}. No worker starts.",
            "Fix the module; the log of this command has the traceback.",
            severity="error",
            value=path,
        )


# Queues -------------------------------------------------------------------------------


@finding("unserved", part="jobs")
def unserved(look: Look) -> Findings:
    """Does a living worker serve every queue that has jobs to run?"""
    found = [
        queue
        for queue in look.queues
        if queue.ready
        and queue.paused_at is None
        and queue.kind == "tasks"
        and not is_served(queue.name, look.plans)
    ]
    for queue in found:
        more = " or more" if queue.is_more("ready") else ""
        yield verdict(
            True,
            f"Queue {shown(queue.name)} has {queue.ready:,}{more} ready "
            f"job{'' if queue.ready == 1 else 's'} and no living worker.",
            f"{START_FOR}{shown(queue.name)}",
            severity="error",
            value=queue.ready,
            limit=0,
            about=queue.name,
        )
    if not found:
        yield Finding(
            what="Every queue with ready jobs has a living worker, or is paused."
        )


@finding("oldest_ready", part="jobs")
def oldest_ready(look: Look) -> Findings:
    """Do jobs begin soon enough?"""
    waits = {
        queue: queue.oldest_ready_seconds
        for queue in look.queues
        if queue.oldest_ready_seconds is not None and queue.paused_at is None
    }
    if not waits:
        yield Finding(what="No job is waiting.")
        return
    queue = max(waits, key=lambda each: waits[each])
    name, limit = shown(queue.name), queue_taken(queue, look.settings.queue_limits)
    yield verdict(
        waits[queue] > READY_SECONDS_MAX,
        f"The oldest ready job has waited {age(waits[queue])}, in queue {name}"
        f"{f', which has a limit: {limit}' if limit else ''}.",
        "Start more workers for it, or see what keeps those that are there."
        + (f" Or raise it: manage.py pgqueue limit {name}" if limit else ""),
        value=waits[queue],
        limit=READY_SECONDS_MAX,
        about=queue.name,
    )


@finding("suspects", part="jobs")
def suspects(look: Look) -> Findings:
    """Do jobs wait to run alone, since their process has died?"""
    names = [queue.name for queue in look.queues if queue.alone]
    count = sum(queue.alone for queue in look.queues)
    yield verdict(
        count,
        f"{plural(count, 'job')} of a process that died "
        f"{'waits' if count == 1 else 'wait'} to run alone, in {named(names)}.",
        "Each worker runs one at a time, beside its other work. Which of them ends its "
        "process becomes a dead letter, worker_lost: manage.py pgqueue dead",
        right="No job waits to run alone.",
        value=count,
        limit=0,
    )


@finding("paused", part="jobs")
def paused(look: Look) -> Findings:
    """Do jobs wait in a queue that is paused?"""
    found = [queue for queue in look.queues if queue.paused_at is not None]
    names = [queue.name for queue in found]
    text = f"Paused: {named(names)}." if found else "No queue is paused."
    yield verdict(
        any(queue.ready for queue in found),
        text,
        "Their ready jobs wait: manage.py pgqueue resume QUEUE",
        value=names,
    )


@finding("queue_depth")
def queue_depth(look: Look) -> Findings:
    """Does a queue hold as many jobs as it may, or soon?"""
    limits = look.settings.depths_max
    if not limits:
        return
    depths = {queue.name: queue.depth or 0 for queue in look.queues}
    near = [n for n in limits if depths.get(n, 0) >= NEARLY_FULL * limits[n]]
    near.sort(key=lambda name: limits[name] / (1 + depths[name]))
    worst = near[0] if near else ""
    limit = look.settings.depth_limit(worst)
    yield verdict(
        near,
        "Queues hold nearly as many jobs as they may, or as many: "
        + named([f"{name} {share(depths[name], limits[name])}" for name in near])
        + ("" if limit is None else f". {worst}, when full, {DOES[limit.on_full]}."),
        f"Run more workers for it, such as {START_FOR}{worst}; or raise "
        f"PGQUEUE['QUEUES'][{worst!r}]['depth_max'].",
        right="Every queue with a limit has room.",
        value={name: depths[name] for name in near},
        limit={name: limits[name] for name in near},
    )


# Jobs ---------------------------------------------------------------------------------


@finding("leases")
def leases(look: Look) -> Findings:
    """Are there leases that ran out and that nobody takes over?"""
    (found,) = look.rows(doctor.LAPSED, limit=COUNT_MAX)
    ago = "" if found.seconds is None else f", the first {age(found.seconds)} ago"
    yield verdict(
        found.seconds is not None and found.seconds > LAPSED_SECONDS_MAX,
        f"{found.jobs:,} leases ran out and were not taken over{ago}."
        if found.jobs
        else "No lease ran out without being taken over.",
        "Their workers died, and no other one serves their queues: start one.",
        value=found.jobs,
        limit=LAPSED_SECONDS_MAX,
    )


@finding("tasks")
def tasks(look: Look) -> Findings:
    """Do jobs wait whose task nobody declares?"""
    seen = [row.task for row in look.rows(doctor.TASKS, limit=TASK_ROWS_MAX)]
    unknown = [name for name in seen if name not in {PULL_TASK, *registry.tasks}]
    yield verdict(
        unknown,
        f"Jobs wait whose task is not declared here: {named(unknown)}.",
        "Deploy the code that has them, declare them in a module of TASK_MODULES, or "
        "add aliases=[…] to the renamed task; after "
        f"{duration(look.settings.unknown_task_grace_seconds)} they are dead.",
        right="Every waiting job's task is declared.",
        value=unknown[:NAMES_MAX],
    )


@finding("dead_letters", part="dead_letters")
def dead_letters(look: Look) -> Findings:
    """Did jobs give up lately?"""
    reasons: Counter[str] = Counter()
    for each in look.died:
        reasons[each.reason] += each.jobs
    count = reasons.total()
    texts = [f"{number:,} {reason}" for reason, number in reasons.most_common()]
    more = " or more" if count >= DEAD_LETTERS_MAX else ""
    yield verdict(
        count,
        f"{count:,}{more} jobs gave up in the last 24 h: {', '.join(texts)}.",
        "manage.py pgqueue dead; fix the cause, then pgqueue redrive.",
        right="No job gave up in the last 24 h.",
        value=count,
        limit=0,
    )


@finding("reprocessed")
def reprocessed(look: Look) -> Findings:
    """Where rules redrive dead letters: did jobs give up nevertheless?"""
    if not look.settings.reprocess:
        return
    (found,) = look.rows(
        reprocess.AGAIN, period=DEAD_LETTERS_PERIOD, limit=DEAD_LETTERS_MAX
    )
    yield verdict(
        found.jobs,
        f"{found.jobs:,} jobs gave up again in the last 24 h, after a rule of "
        f"PGQUEUE['REPROCESS'] had redriven them.",
        "No rule takes them again: see what they fail of, by manage.py pgqueue dead "
        "--by error.",
        right="No job gave up in the last 24 h that a rule had redriven.",
        value=found.jobs,
        limit=0,
    )


# Sagas --------------------------------------------------------------------------------


@finding("sagas", part="workflows")
def sagas(look: Look) -> Findings:
    """Do sagas get on with undoing what they have done?"""
    stuck = look.rows(doctor.STUCK_SAGAS, attempts=FAILURES_MAX, limit=COMPENSATING_MAX)
    texts = []
    for saga in stuck:
        name = f"{saga.name} {saga.key}" if saga.key and look.tells_keys else saga.name
        how = f"has failed {saga.failures or 0:,} times"
        if saga.state == "dead":
            how = "is dead"
        undo = f"its {saga.compensation}, job {saga.job}, {how}"
        texts.append(f"{name} (saga {saga.id}: {undo})")
    is_dead = any(each.state == "dead" for each in stuck)
    way_out = (
        "See why, by manage.py pgqueue show JOB. It is tried until it succeeds; "
        "manage.py pgqueue retry JOB tries at once."
    )
    if is_dead:
        way_out = (
            "Fix the cause, then manage.py pgqueue flows retry SAGA. Or undo it by "
            "hand, then manage.py pgqueue flows resolve SAGA. The page of the saga in "
            "the admin does either."
        )
    yield verdict(
        stuck,
        f"{len(stuck):,} saga{' does' if len(stuck) == 1 else 's do'} not get on with "
        f"undoing: {named(texts)}.",
        way_out,
        right="Every saga that compensates gets on with it.",
        severity="error" if is_dead else "warning",
        value=[each.id for each in stuck],
        limit=FAILURES_MAX,
    )


@finding("saga_versions")
def saga_versions(look: Look) -> Findings:
    """Report sagas that began with other steps than are declared now; none is wrong."""
    others = others_under_way(look.cursor)
    names = named([f"{name} ({count:,})" for name, count in others.items()])
    yield Finding(
        what=f"Sagas under way that began with other steps than are declared now, and "
        f"keep them: {names}."
        if others
        else "Every saga under way began with the steps that are declared now.",
        value=dict(others),
    )


# Schedules ----------------------------------------------------------------------------


@finding("ticks", part="schedules")
def ticks(look: Look) -> Findings:
    """Are ticks issued, by the database's clock?"""
    late = {
        row.name: (look.clock - row.next_tick).total_seconds()
        for row in _by_name(look)
        if state_of(row, look.clock) == "overdue" and row.next_tick is not None
    }
    most = max(late.values(), default=0.0)
    yield verdict(
        late,
        f"Ticks are overdue, the first for {age(most)}: {named(list(late))}.",
        f"No living worker issues them: {START}",
        right="No tick of a schedule is overdue.",
        severity="error",
        value=most,
        limit=OVERDUE.total_seconds(),
    )


def _by_name(look: Look) -> list[ScheduleRow]:
    return sorted(look.schedules, key=lambda row: row.name)


@finding("schedules", part="schedules")
def schedules(look: Look) -> Findings:
    """Can every schedule be read, and its ticks be issued?"""
    rows = [row for row in _by_name(look) if state_of(row, look.clock) == "faulty"]
    error = shown(rows[0].error) if rows else ""
    names = [row.name for row in rows]
    yield verdict(
        rows,
        f"Schedules have no ticks, since they cannot be read, or their tick cannot be "
        f"issued: {named(names)}. {error}",
        "Fix what the error names, or edit or delete them in the admin. What failed is "
        "tried again once a minute.",
        right="Every schedule can be read.",
        severity="error",
        value=names,
    )


@listing(
    "schedule_tasks",
    wrong="Schedules have a task that is not declared here: {}.",
    right="The task of every schedule is declared.",
    way_out="Deploy the code that has it, or pause the schedule; its jobs wait, and "
    "then are dead.",
    part="schedules",
)
def schedule_tasks(look: Look) -> Iterator[tuple[str, str]]:
    """Is the task of every schedule declared?"""
    for row in _by_name(look):
        is_known = row.message_name is not None or row.task in registry.tasks
        if row.has_ticks and not is_known:
            yield row.name, f"{row.name} ({row.task})"


@listing(
    "withdrawn",
    wrong="Schedules are declared no longer, and rest: {}.",
    right="Every schedule of code is declared.",
    way_out="Delete them in the admin, if they are not to come back.",
)
def withdrawn(look: Look) -> Iterator[str]:
    """Is every schedule of code declared?"""
    return (row.name for row in look.schedules if row.withdrawn_at is not None)


@listing(
    "hidden",
    wrong="Code declares schedules under names that users have taken: {}.",
    right="No schedule of a user hides one of code.",
    way_out="Those of users hold. Delete them in the admin, then migrate.",
)
def hidden(look: Look) -> Iterator[str]:
    """Has a user taken the name of a schedule of code?"""
    ours = {each.name for each in declared()}
    return (r.name for r in look.schedules if r.source == "user" and r.name in ours)
