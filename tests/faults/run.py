"""Run: one row from its first fault to its verdict."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults import (
    checks,
    history,
    injectors,
    lane_checks,
    ledger,
    people,
    schedules,
    tick_checks,
)
from tests.faults.evidence import (
    Evidence,
    SagaRow,
    claims_of,
    harms_of,
    last_seen_of,
    operations_of,
    runs_of,
)
from tests.faults.plan import Fault
from tests.faults.rows import Run
from tests.faults.stage import Stage
from tests.faults.verdict import Verdict, judge
from tests.harness.waiting import wait_for

# After the last job: how long what is on its way out may take, and how long the
# processor time of idle workers is measured.
CALM_SECONDS = 1.5
IDLE_SECONDS = 1.0
IDLE_CPU_SHARE_MAX = 0.05
LEAVE_SECONDS = 10.0
# What P4's handlers take, and as long again.
RUNS_ON_SECONDS_MAX = 30.0
LATER_SECONDS = 0.25
DEATHS_SECONDS_MAX = 40.0

WATCH_SECONDS = 45.0

PLACES = """
SELECT id, 'queue', NULL FROM pgqueue_job
UNION ALL SELECT id, 'archive', state FROM pgqueue_archived_job
UNION ALL SELECT id, 'dead', reason FROM pgqueue_dead_letter
"""

# Of workflows, with how each of their steps ended.
SAGAS = """
SELECT w.id, coalesce(w.key, w.name), w.state, w.active,
       jsonb_build_object('succeeded', w.succeeded, 'dead', w.dead,
                          'cancelled', w.cancelled),
       (SELECT jsonb_object_agg(s.name, s.state) FROM pgqueue_step s
         WHERE s.workflow_id = w.id)
  FROM pgqueue_workflow w ORDER BY w.id
"""

# What is left over once nothing happens any more.
LEFT = """
SELECT 'a connection in a transaction: ' || application_name FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND application_name <> 'faults'
   AND state LIKE 'idle in transaction%'
UNION ALL
SELECT 'an advisory lock of ' || coalesce(a.application_name, '?')
  FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
 WHERE l.locktype = 'advisory'
UNION ALL
SELECT count(*) || ' connections ' || application_name FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND application_name LIKE 'pgqueue %'
 GROUP BY application_name HAVING count(*) > 1
UNION ALL
SELECT 'a prepared transaction' FROM pg_prepared_xacts
"""
CONNECTED = """
SELECT 'still connected: ' || application_name FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND application_name <> 'faults'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a run."""

    run: Run
    verdict: Verdict
    evidence: Evidence
    seconds: float
    drained_seconds: float | None


def perform(run: Run, *, build: Path, folder: Path, template: Path) -> Result:
    """
    Let the faults of *run* happen to *build*, heal them, and judge.

    Args:
        run: What is to happen.
        build: A folder with the package under test, and ``tests``.
        folder: For ledgers and logs.
        template: A cluster with the tables of the build.
    """
    began = time.monotonic()
    with Stage(run, build=build, folder=folder, template=template) as stage:
        for _ in range(run.row.workers):
            stage.start_worker()
        stage.start_clients()
        for worker in stage.fleet.workers:
            worker.wait_until_ready()
        started_at = stage.let_clients_begin()
        _let_happen(stage, started_at)
        if run.row.schedules:
            stage.measures["schedules"] = run.row.schedules
            stage.measures["held_at"] = schedules.hold(stage.server)
        healed_at = time.time()
        drained_at = _wait_until_drained(stage)
        waiting = people.act(stage) if run.row.load.steps else []
        if waiting and drained_at is not None:
            drained_at = _wait_until_drained(stage)
        leftovers = list(_calm(stage))
        statuses = stage.fleet.end()
        leftovers += _wait_until_empty(stage, CONNECTED)
        evidence = _collect(stage, healed_at, drained_at, waiting, leftovers, statuses)
    verdict = judge(evidence, run.row.must_bite)
    for check in run.row.checks:
        for problem in check(evidence, verdict):
            verdict.add(check.__name__, problem)
    return Result(
        run=run,
        verdict=verdict,
        evidence=evidence,
        seconds=time.monotonic() - began,
        drained_seconds=None if drained_at is None else drained_at - healed_at,
    )


class Undos:
    """What undoes the faults that last, each in time, whatever the plan waits for."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._left: dict[int, Callable[[], None]] = {}
        self._timers: list[threading.Timer] = []

    def add(self, undo: Callable[[], None], seconds: float) -> None:
        """Undo it after *seconds*; zero: with finish()."""
        number = next(self._numbers)
        self._left[number] = undo
        if seconds:
            self._timers.append(threading.Timer(seconds, self._undo, [number]))
            self._timers[-1].start()

    def finish(self) -> None:
        """Wait for those to come, and undo the others."""
        for timer in self._timers:
            timer.join()
        for number in list(self._left):
            self._undo(number)

    def abandon(self) -> None:
        """Something has broken: leave nothing stopped behind."""
        for timer in self._timers:
            timer.cancel()
        for undo in list(self._left.values()):
            with contextlib.suppress(Exception):
                undo()

    def _undo(self, number: int) -> None:
        self._left[number]()
        # What has failed is tried again at the end.
        del self._left[number]


def _let_happen(stage: Stage, started_at: float) -> None:
    """Inject and undo by the plan; return when all is healed and all is enqueued."""
    order = itertools.count()
    agenda: list[tuple[float, int, Callable[[], Any]]] = []
    undos = Undos()

    def plan(at: float, action: Callable[[], Any]) -> None:
        heapq.heappush(agenda, (at, next(order), action))

    def inject(fault: Fault) -> None:
        try:
            undo = injectors.KINDS[fault.kind](stage, fault)
        except injectors.NonePausable:
            # This plan is late, and soon there is one.
            plan(time.monotonic() + LATER_SECONDS, partial(inject, fault))
        else:
            if undo is not None:
                undos.add(undo, fault.seconds)

    for fault in stage.run.faults():
        plan(started_at + fault.at, partial(inject, fault))
    plan(started_at + stage.run.seconds, lambda: None)
    try:
        while agenda:
            time.sleep(max(agenda[0][0] - time.monotonic(), 0))
            heapq.heappop(agenda)[2]()
        undos.finish()
    finally:
        undos.abandon()
    if stage.run.row.points:
        _wait_for_deaths(stage)
    stage.wait_for_clients()


def _wait_for_deaths(stage: Stage) -> None:
    """Let schedules and clients go on until the planned deaths have happened."""
    # Too few are for the row's own check to tell.
    with contextlib.suppress(AssertionError):
        wait_for(lambda: stage.deaths_left() == 0, DEATHS_SECONDS_MAX)


def _wait_until_drained(stage: Stage) -> float | None:
    """Return when the last job has ended; None: not before the deadline."""
    until = time.monotonic() + stage.run.row.drain_seconds
    with stage.server.connect() as connection:
        while time.monotonic() < until:
            (left,) = connection.execute(
                "SELECT EXISTS (SELECT FROM pgqueue_job)"
            ).fetchone() or (True,)
            if not left:
                return time.time()
            time.sleep(0.05)
    return None


def _calm(stage: Stage) -> Iterator[str]:
    """Yield what is left over when nothing is to be done: I13."""
    yield from _wait_until_empty(stage, LEFT)
    _wait_for_runs(stage)
    # Processes for suspects leave by themselves, and cost something until then.
    expected = stage.run.row.processes * len(stage.fleet.living())
    wait_for(
        lambda: len(stage.fleet.children()) <= expected,
        LEAVE_SECONDS,
        "no process for suspects is left",
    )
    time.sleep(CALM_SECONDS)
    before = stage.fleet.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    after = stage.fleet.cpu_seconds()
    shares = [
        (after[pid] - before[pid]) / IDLE_SECONDS for pid in before if pid in after
    ]
    stage.measures["idle_cpu_share"] = max(shares, default=0.0)
    for share in shares:
        if share > IDLE_CPU_SHARE_MAX:
            yield f"an idle process takes {share:.0%} of a processor"
    for orphan in stage.fleet.orphans():
        yield f"process {orphan} outlives its supervisor"


def _wait_for_runs(stage: Stage) -> None:
    """
    Let handlers end whose jobs have, or wait for a while.

    One that holds the interpreter for three leases runs on after others have taken the
    job and finished it, and its process cannot leave before.
    """

    def are_over() -> bool:
        living = set(stage.fleet.children())
        running = set()
        for line in ledger.read(stage.folder, "tasks"):
            if line["event"] in ("start", "fail", "end") and line["pid"] in living:
                run = (line["pid"], line["job"], line["delivery"])
                (running.add if line["event"] == "start" else running.discard)(run)
        return not running

    # Who never ends is for what follows to tell.
    with contextlib.suppress(AssertionError):
        wait_for(are_over, RUNS_ON_SECONDS_MAX)


def _wait_until_empty(stage: Stage, query: str) -> list[str]:
    """Return the rows of *query*, once there are none or patience is over."""
    until = time.monotonic() + LEAVE_SECONDS
    with stage.server.connect() as connection:
        while True:
            rows = [str(row[0]) for row in connection.execute(query).fetchall()]
            if not rows or time.monotonic() > until:
                return rows
            time.sleep(0.1)


def _collect(
    stage: Stage,
    healed_at: float,
    drained_at: float | None,
    waiting: list[tuple[int, str, str, str]],
    leftovers: list[str],
    statuses: list[int | None],
) -> Evidence:
    for thread in stage.watchers[1:]:
        thread.join(WATCH_SECONDS)
    tasks = ledger.read(stage.folder, "tasks")
    with stage.server.connect() as connection, connection.cursor() as cursor:
        changes = history.read(cursor)
        places: dict[int, list[tuple[str, str | None]]] = {}
        for job, place, state in cursor.execute(PLACES).fetchall():
            places.setdefault(job, []).append((place, state))
        effects = cursor.execute(
            "SELECT job, delivery, key, isolation FROM faults_effect"
        ).fetchall()
        known, ticks, steps = schedules.read(cursor)
        committed = cursor.execute("SELECT key FROM faults_operation").fetchall()
        sagas = cursor.execute(SAGAS).fetchall()
    harms = harms_of(ledger.read(stage.folder, "faults"), time.time())
    runs, forgotten = runs_of(tasks, claims_of(changes), harms)
    evidence = Evidence(
        operations=operations_of(ledger.read(stage.folder, "clients")),
        committed_operations=frozenset(key for (key,) in committed),
        runs=runs,
        forgotten=forgotten,
        told=[
            (line["event"], line["job"], line["delivery"], line["kind"])
            for line in tasks
            if line["event"] in ("told", "stale")
        ],
        leaks=[line["what"] for line in tasks if line["event"] == "leak"],
        last_seen=last_seen_of(ledger.read(stage.folder, "workers"), tasks),
        pids=stage.pids_by_name(),
        harms=harms,
        changes=changes,
        places=places,
        effects=effects,
        schedules=known,
        ticks=ticks,
        steps=steps,
        sagas=[SagaRow(*row) for row in sagas],
        waiting=waiting,
        leftovers=leftovers,
        statuses=statuses,
        log_lines=stage.fleet.lines(),
        healed_at=healed_at,
        drained_at=drained_at,
        measures=stage.measures,
    )
    stage.measures["late_starts"] = sum(
        wait > checks.WAKE_SECONDS_P95_MAX for _, wait in checks.waits(evidence)
    )
    stage.measures["sagas"] = Counter(saga.state for saga in evidence.sagas)
    stage.measures["littered"] = sum(
        task == "litter" for task, _, _ in checks.ends(evidence)
    )
    if stage.run.row.load.loud_share:
        stage.measures["turns_ahead"] = lane_checks.turns_ahead(evidence)
    elif stage.run.row.load.customers:
        stage.measures["room_seconds"] = lane_checks.room_seconds(evidence)
    if stage.run.row.schedules:
        stage.measures["ticks"] = len(ticks)
        stage.measures["late_seconds"] = tick_checks.late_seconds(evidence)
        stage.measures["issued_by"] = stage.issued_by(steps)
        stage.measures["handed_over"] = tick_checks.handed_over(evidence)
        stage.measures["caught_up"] = tick_checks.caught_up(
            evidence, stage.run.row.schedules
        )
    return evidence
