"""
Injectors: what does the harm. One function for each kind of fault of a plan.

Each gets the stage and the fault, notes in the ledger whom it hits, and returns what
undoes it, if anything must. It notes first and harms then: a death may be felt, and a
job be rescued, before the next line of this process runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import psycopg

from tests.faults.fleet import Worker
from tests.faults.plan import Fault
from tests.faults.stage import Stage
from tests.harness.proxy import Passage
from tests.harness.waiting import wait_for
from tests.harness.worker_process import is_alive

Undo = Callable[[], None] | None

TICK_SECONDS = 0.05
WATCH_SECONDS_MAX = 40.0

# The connections of workers and clients, in an order that a plan can count on.
BACKENDS = """
SELECT pid, application_name FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND application_name <> 'faults'
   AND datname = current_database() AND application_name LIKE %s
 ORDER BY application_name, pid
"""

HOLDERS = "SELECT DISTINCT leased_by FROM pgqueue_job WHERE leased_by IS NOT NULL"

# One that is at work in this very moment; OFFSET picks among them.
CANCEL_BUSY = """
WITH busy AS MATERIALIZED (
    SELECT pid, application_name, count(*) OVER () AS number FROM pg_stat_activity
     WHERE backend_type = 'client backend' AND application_name <> 'faults'
       AND state = 'active' ORDER BY application_name, pid)
SELECT application_name, pg_cancel_backend(pid) FROM busy
OFFSET %s %% (SELECT greatest(max(number), 1) FROM busy) LIMIT 1
"""
BUSY_SECONDS_MAX = 0.4
# A pause or a hole that hits nobody at work proves nothing: so long for somebody.
VICTIM_SECONDS_MAX = 4.0

TIMEOUTS = {
    "statement_timeout": "50ms",
    "lock_timeout": "20ms",
    "idle_in_transaction_session_timeout": "1s",
}


# Processes ---------------------------------------------------------------------------


def kill_process(stage: Stage, fault: Fault) -> Undo:
    """kill -9 one process of a worker; its supervisor starts another."""
    pids = [pid for pid in stage.fleet.children() if pid not in stage.paused]
    if pids:
        pid = pids[fault.victim % len(pids)]
        stage.note(fault.kind, [pid])
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return None


def kill_group(stage: Stage, fault: Fault) -> Undo:
    """kill -9 a supervisor with its processes, and start a new worker."""
    worker, pids = _worker(stage, fault)
    stage.note(fault.kind, pids, fault.what)
    os.killpg(worker.pid, signal.SIGKILL)
    worker.popen.wait()
    stage.start_worker(worker.place)
    return None


def kill_all(stage: Stage, fault: Fault) -> Undo:
    """kill -9 all workers with their processes; start as many again later."""
    workers = stage.fleet.living()
    pids = [pid for worker in workers for pid in (worker.pid, *worker.children())]
    healed = stage.note_lasting(fault.kind, pids)
    for worker in workers:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.popen.wait()

    def undo() -> None:
        for worker in workers:
            stage.start_worker(worker.place)
        healed()

    return undo


def kill_supervisor(stage: Stage, fault: Fault) -> Undo:
    """kill -9 a supervisor alone, start a new worker, and time the orphans."""
    worker, pids = _worker(stage, fault)
    stage.note(fault.kind, pids, fault.what)
    os.kill(worker.pid, signal.SIGKILL)
    worker.popen.wait()
    began = time.monotonic()

    def watch_orphans() -> None:
        while any(is_alive(pid) for pid in pids[1:]) and not stage.is_over:
            time.sleep(TICK_SECONDS)
        stage.measures["orphan_seconds"].append(time.monotonic() - began)

    stage.watch(watch_orphans)
    stage.start_worker(worker.place)
    return None


class NonePausable(Exception):
    """There is none that could be paused, until one goes on or is started."""


def pause_process(stage: Stage, fault: Fault) -> Undo:
    """SIGSTOP one process of a worker, a busy one if asked for; SIGCONT it later."""

    # They may be about to start.
    children = wait_for(stage.fleet.children, VICTIM_SECONDS_MAX, "a process")
    pids = [pid for pid in children if pid not in stage.paused]
    if not pids:
        raise NonePausable
    until = time.monotonic() + (VICTIM_SECONDS_MAX if fault.what == "busy" else 0.0)
    while True:
        busy = _busy(stage) & set(pids) if fault.what == "busy" else set()
        some = sorted(busy) or pids
        pid = some[fault.victim % len(some)]
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:
            # Another fault has just killed it.
            raise NonePausable from None
        # Its job may have ended in between: then another one.
        if time.monotonic() > until or pid in _busy(stage):
            break
        os.kill(pid, signal.SIGCONT)
    # A pause is felt when a lease has run out, long after this line.
    healed = stage.note_lasting(fault.kind, [pid])
    stage.paused.add(pid)

    def undo() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        stage.paused.discard(pid)
        healed()

    return undo


def _busy(stage: Stage) -> set[int]:
    """Return the processes that hold a lease, once there are any; soon, or none."""
    until = time.monotonic() + BUSY_SECONDS_MAX
    # Another fault may crash the server meanwhile; then nobody is seen to be busy.
    lost = contextlib.suppress(psycopg.OperationalError)
    with lost, stage.server.connect() as connection:
        while time.monotonic() < until:
            rows = connection.execute(HOLDERS).fetchall()
            pids = stage.pids_by_name()
            busy = {pids[name] for (name,) in rows if name in pids}
            if busy:
                return busy
            time.sleep(TICK_SECONDS)
    return set()


def _worker(stage: Stage, fault: Fault) -> tuple[Worker, list[int]]:
    """Return a worker that has something to lose, with all its processes."""
    busy = _busy(stage)
    living = stage.fleet.living()
    workers = [w for w in living if busy & set(w.children())] or living
    worker = workers[fault.victim % len(workers)]
    return worker, [worker.pid, *worker.children()]


# The database ------------------------------------------------------------------------


def pause_backend(stage: Stage, fault: Fault) -> Undo:
    """SIGSTOP the server's process of one loop's connection."""
    found = _backend(stage, fault, f"pgqueue {fault.what}%")
    if found is None:
        return None
    # It may hold a lock that others need, so everybody may feel it.
    healed = stage.note_lasting(fault.kind, None, fault.what)
    pid, _ = found
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)

    def undo() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        healed()

    return undo


def terminate_backend(stage: Stage, fault: Fault) -> Undo:
    """End one connection from the server's side."""
    _signal_backend(stage, fault, "SELECT pg_terminate_backend(%s)")
    return None


def cancel_backend(stage: Stage, fault: Fault) -> Undo:
    """Cancel the statement of a connection that is caught at work."""
    until = time.monotonic() + BUSY_SECONDS_MAX
    with stage.server.connect() as connection:
        while time.monotonic() < until:
            row = connection.execute(CANCEL_BUSY, [fault.victim]).fetchone()
            if row is not None:
                stage.note(fault.kind, stage.pids_of(row[0]), row[0])
                break
    return None


def crash_server(stage: Stage, fault: Fault) -> Undo:
    """Stop the server without a good-bye; start it again later."""
    return _end_server(stage, fault, crash=True)


def stop_server(stage: Stage, fault: Fault) -> Undo:
    """Stop the server in order; start it again later."""
    return _end_server(stage, fault, crash=False)


def short_timeouts(stage: Stage, fault: Fault) -> Undo:
    """Set timeouts on the role that ordinary statements may exceed."""
    return _set_on_role(stage, fault, TIMEOUTS)


def isolation(stage: Stage, fault: Fault) -> Undo:
    """Set another isolation level on the role."""
    return _set_on_role(stage, fault, {"default_transaction_isolation": fault.what})


def lock_table(stage: Stage, fault: Fault) -> Undo:
    """Lock the table of jobs against every write for a moment."""
    connection = stage.server.connect()
    healed = stage.note_lasting(fault.kind, None)
    connection.execute("BEGIN")
    connection.execute("LOCK TABLE pgqueue_job IN SHARE MODE")

    def undo() -> None:
        connection.close()
        healed()

    return undo


def _backend(stage: Stage, fault: Fault, pattern: str) -> tuple[int, str] | None:
    with stage.server.connect() as connection:
        rows = connection.execute(BACKENDS, [pattern]).fetchall()
    return rows[fault.victim % len(rows)] if rows else None


def _signal_backend(stage: Stage, fault: Fault, statement: str) -> None:
    found = _backend(stage, fault, "%")
    if found is not None:
        pid, application = found
        stage.note(fault.kind, stage.pids_of(application), application)
        with stage.server.connect() as connection:
            connection.execute(statement, [pid])


def _set_on_role(stage: Stage, fault: Fault, values: dict[str, str]) -> Undo:
    with stage.server.connect() as connection:
        for name, value in values.items():
            connection.execute(f"ALTER ROLE CURRENT_USER SET {name} = '{value}'")
        # It holds for new sessions.
        for pid, _ in connection.execute(BACKENDS, ["%"]).fetchall():
            connection.execute("SELECT pg_terminate_backend(%s)", [pid])
    stage.note(fault.kind, None, fault.what)

    def undo() -> None:
        with stage.server.connect() as connection:
            for name in values:
                connection.execute(f"ALTER ROLE CURRENT_USER RESET {name}")

    return undo


def _end_server(stage: Stage, fault: Fault, *, crash: bool) -> Undo:
    healed = stage.note_lasting(fault.kind, None)
    children = stage.fleet.children()
    lines, cpu = len(stage.fleet.lines()), stage.fleet.cpu_seconds()
    stage.server.end(crash=crash)
    down_at = time.monotonic()

    def undo() -> None:
        seconds = time.monotonic() - down_at
        more = len(stage.fleet.lines()) - lines
        stage.measures["lines_per_second"].append(more / seconds / len(children))
        used = stage.fleet.cpu_seconds()
        stage.measures["cpu_while_down"].append(
            max((used.get(pid, 0.0) - cpu[pid]) / seconds for pid in cpu)
        )
        stage.server.start()
        healed()
        stage.watch(lambda: _time_return(stage, len(children)))

    return undo


def _time_return(stage: Stage, expected: int) -> None:
    """Time how long it takes until every process has a claimer's connection again."""
    began = time.monotonic()
    found: list[Any] = []
    while len(found) < expected and time.monotonic() - began < WATCH_SECONDS_MAX:
        time.sleep(TICK_SECONDS)
        if stage.is_over:
            return
        with contextlib.suppress(Exception), stage.server.connect() as connection:
            found = connection.execute(BACKENDS, ["pgqueue claimer%"]).fetchall()
    stage.measures["back_seconds"].append(time.monotonic() - began)


# The network -------------------------------------------------------------------------


def hole(stage: Stage, fault: Fault) -> Undo:
    """Let nothing through: of all listeners, or of all connections of a worker."""
    if fault.what.startswith("pgqueue"):
        proxies, pids = stage.proxies, None
    else:
        place = _busy_place(stage, fault)
        proxies = [stage.proxies[place]]
        pids = stage.fleet.workers[place].children()
    healed = stage.note_lasting(fault.kind, pids, fault.what)
    one_way = fault.what == "one way"
    for proxy in proxies:
        proxy.open_hole(b"" if pids else fault.what.encode(), one_way=one_way)

    def undo() -> None:
        for proxy in proxies:
            proxy.close_hole()
        healed()

    return undo


def _busy_place(stage: Stage, fault: Fault) -> int:
    """Return the place of a worker that holds a lease and is in no hole yet."""
    workers = stage.fleet.workers
    until = time.monotonic() + VICTIM_SECONDS_MAX
    while True:
        busy = _busy(stage)
        places = [
            place
            for place, worker in enumerate(workers)
            if busy & set(worker.children()) and not stage.proxies[place].has_hole
        ]
        if places:
            return places[fault.victim % len(places)]
        if time.monotonic() > until:
            return fault.victim % len(workers)


def cut_connection(stage: Stage, fault: Fault) -> Undo:
    """End one TCP connection with a reset."""
    passages = [p for proxy in stage.proxies for p in proxy.passages() if p.startup]
    if not passages:
        return None
    passages.sort(key=_name_of)
    passage = passages[fault.victim % len(passages)]
    name = _name_of(passage)
    passage.reset()
    stage.note(fault.kind, stage.pids_of(name), name)
    return None


def _name_of(passage: Passage) -> str:
    _, _, rest = passage.startup.partition(b"application_name\0")
    return rest.partition(b"\0")[0].decode()


KINDS: dict[str, Callable[[Stage, Fault], Undo]] = {
    function.__name__: function
    for function in (
        kill_process,
        kill_group,
        kill_all,
        kill_supervisor,
        pause_process,
        pause_backend,
        terminate_backend,
        cancel_backend,
        crash_server,
        stop_server,
        short_timeouts,
        isolation,
        lock_table,
        hole,
        cut_connection,
    )
}
