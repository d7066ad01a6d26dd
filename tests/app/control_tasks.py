"""Sample tasks that speak with their worker, and some that leave things behind."""

from __future__ import annotations

import ctypes
import decimal
import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django.utils import timezone, translation

from django_pgqueue import Cancel, LeaseLost, Reject, Retry, Snooze, WrongState, task
from django_pgqueue.tasks.context import JobContext
from tests.app.models import Effect
from tests.crashes import failpoints
from tests.harness import ledger
from tests.harness.proxy import CUT_NEXT_COMMIT, DROP_NEXT_COMMIT
from tests.harness.waiting import wait_for

HARMS = {"cut": CUT_NEXT_COMMIT, "drop": DROP_NEXT_COMMIT}

GATE_SECONDS_MAX = 60.0
ONCE = Retry(max_attempts=1)
SOON = Retry(max_attempts=3, backoff="constant", base=0.05, jitter="none")


def _pass(gate: str | None) -> None:
    if gate is not None:
        wait_for(Path(gate).exists, GATE_SECONDS_MAX, "the gate opens")


# Emitting ----------------------------------------------------------------------------


@task(takes_context=True, retries=SOON)
def emits(ctx: JobContext, gate: str, then: str = "return") -> str:
    """Emit three values with a gate between; the first attempt may end otherwise."""
    ctx.emit(f"first of {ctx.attempt}")
    _pass(f"{gate}.1")
    ctx.emit(ctx.id)
    _pass(f"{gate}.2")
    if then == "die" and not Path(f"{gate}.died").exists():
        Path(f"{gate}.died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if then == "fail" and ctx.attempt == 1:
        raise ValueError("half-way")
    ctx.emit("last")
    if then == "reject":
        raise Reject("never")
    return "all"


@task(takes_context=True, retries=Retry(max_attempts=2, base=0))
def emits_these(ctx: JobContext, values: list[Any], fails: int = 0) -> str:
    """Emit values, and fail in the first attempts."""
    for value in values:
        ctx.emit(value)
    if ctx.attempt <= fails:
        raise ValueError("bad luck")
    return "done"


@task(takes_context=True, atomic=True)
def emits_atomically(ctx: JobContext, gate: str) -> None:
    """Emit before and after a write, and wait before the commit."""
    ctx.emit("before")
    Effect.objects.create(job=ctx.id)
    _pass(f"{gate}.1")
    ctx.emit("after")


# Cancelling -------------------------------------------------------------------------


@task(takes_context=True)
def until_cancelled(ctx: JobContext, then: str = "return") -> str:
    """Run until somebody cancels; then end in one of several ways."""
    ledger.write("start", ctx.id, ctx.attempt)
    wait_for(lambda: ctx.cancelled, GATE_SECONDS_MAX, "a cancel")
    ledger.write("cancelled", ctx.id, ctx.attempt)
    if then == "cancel":
        raise Cancel
    if then == "fail":
        raise ValueError("stopped half-way")
    if then == "snooze":
        raise Snooze(60)
    return "done nevertheless"


# What a context does ----------------------------------------------------------------


@task(takes_context=True)
def reports(ctx: JobContext, steps: int, gate: str | None = None) -> None:
    """Report progress, the first before the gate and the others quickly after it."""
    ledger.write("start", ctx.id, ctx.attempt)
    ctx.progress(0, total=steps, note="begun")
    _pass(gate)
    for step in range(1, steps + 1):
        ctx.progress(step, total=steps)


@task(takes_context=True)
def extends(ctx: JobContext, duration: str | None = None, gate: str = "") -> None:
    """Extend the lease and go on, until the test opens the gate."""
    ledger.write("start", ctx.id, ctx.attempt)
    try:
        ctx.extend(duration)
    except LeaseLost as error:
        ledger.write("lost", ctx.id, note=str(error))
        raise
    ledger.write("extended", ctx.id)
    _pass(gate)
    try:
        ctx.extend(duration)
    except LeaseLost as error:
        ledger.write("lost", ctx.id, note=str(error))
        raise


# Ack policies -----------------------------------------------------------------------


@task(takes_context=True, ack_policy="first")
def acks_first(ctx: JobContext, how: str = "return", gate: str | None = None) -> int:
    """Be acked before this line."""
    ledger.write("start", ctx.id, ctx.attempt)
    _pass(gate)
    if how == "fail":
        raise ValueError("too late for a retry")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return 42


@task(takes_context=True, ack_policy="manual", retries=SOON)
def speaks(
    ctx: JobContext,
    words: list[str],
    before: str | None = None,
    gate: str | None = None,
) -> str:
    """Say what the test wants said, between two gates."""
    ledger.write("start", ctx.id, ctx.attempt)
    _pass(before)
    for word in words:
        try:
            _say(ctx, word)
        except (WrongState, LeaseLost) as error:
            ledger.write("refused", ctx.id, note=[type(error).__name__, str(error)])
        else:
            ledger.write("said", ctx.id, note=word)
    _pass(gate)
    if "fail" in words:
        raise ValueError("after the word")
    return "done"


def _say(ctx: JobContext, word: str) -> None:
    if word == "ack":
        ctx.ack()
    elif word == "reject":
        ctx.reject("the test says no")
    elif word == "retry":
        ctx.retry("1h")
    elif word == "retry by policy":
        ctx.retry()
    elif word == "raise":
        raise Reject("by raising")


def _starts(ctx: JobContext) -> list[Any]:
    path = Path(os.environ[ledger.PATH])
    return [e for e in ledger.Ledger(path).entries("start") if e.job == ctx.id]


# Atomic -----------------------------------------------------------------------------


@task(takes_context=True, archive=False, retries=ONCE)
def leaves_no_trace(ctx: JobContext, how: str = "return") -> int:
    """End in one of several ways; a success leaves nothing behind."""
    ledger.write("start", ctx.id, ctx.attempt)
    if how == "fail":
        raise ValueError("kept")
    if how == "cancel":
        raise Cancel
    return 42


@task(takes_context=True, archive=False)
def plainly_leaves_no_trace(ctx: JobContext) -> None:
    """Succeed without a result."""
    ledger.write("start", ctx.id, ctx.attempt)


@task(takes_context=True, archive=False, atomic=True)
def atomically_leaves_no_trace(ctx: JobContext) -> None:
    """Write a row of this job, and the ack with it."""
    Effect.objects.create(job=ctx.id, attempt=ctx.attempt)
    ledger.write("start", ctx.id, ctx.attempt)


@task(takes_context=True, atomic=True, retries=SOON)
def atomic_effect(ctx: JobContext, seconds: float = 0.0) -> int:
    """
    Write one row, in the transaction of the ack: exactly one stays, whatever happens.

    For fault runs: *seconds* is how long the transaction stays open after the write.
    """
    ledger.write("start", ctx.id, ctx.attempt)
    Effect.objects.create(job=ctx.id, attempt=ctx.attempt)
    if seconds:
        time.sleep(seconds)
    failpoints.fire("running")
    return ctx.id


@task(takes_context=True, atomic=True, retries=SOON)
def atomic_harmed(ctx: JobContext, harm: str) -> None:
    """Write a row; the first time, the proxy ends the connection at the COMMIT."""
    ledger.write("start", ctx.id, ctx.attempt)
    Effect.objects.create(job=ctx.id, attempt=ctx.attempt)
    if len(_starts(ctx)) == 1:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 " + HARMS[harm].decode())


@task(takes_context=True, atomic=True, retries=SOON)
def atomic_through_gate(ctx: JobContext, gate: str) -> None:
    """Write, wait for the test, write again."""
    Effect.objects.create(job=ctx.id, attempt=ctx.attempt, note="before")
    ledger.write("start", ctx.id, ctx.attempt)
    _pass(gate)
    Effect.objects.create(job=ctx.id, attempt=ctx.attempt, note="after")


@task(takes_context=True, atomic=True, retries=ONCE)
def atomic_does(ctx: JobContext, what: str) -> str:
    """Write a row and do something else to its transaction."""
    ledger.write("start", ctx.id, ctx.attempt)
    Effect.objects.create(job=ctx.id, attempt=ctx.attempt, note=what)
    return ATOMIC_DEEDS[what](ctx) or what


def _nested(ctx: JobContext) -> None:
    try:
        with transaction.atomic():
            Effect.objects.create(job=ctx.id, note="taken back")
            raise ValueError
    except ValueError:
        Effect.objects.create(job=ctx.id, note="kept")


def _hooks(ctx: JobContext) -> None:
    def fail() -> None:
        raise ValueError("in a hook")

    transaction.on_commit(lambda: ledger.write("hook", ctx.id, note=1))
    transaction.on_commit(fail)
    transaction.on_commit(
        lambda: ledger.write("hook", ctx.id, note=Effect.objects.count())
    )


def _caught(ctx: JobContext) -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")
    except Exception as error:
        ledger.write("caught", ctx.id, note=str(error))


def _raw(statement: str) -> Any:
    def run(ctx: JobContext) -> None:
        connection.cursor()
        raw = connection.connection
        with raw.cursor() as cursor:
            cursor.execute(statement)

    return run


def _committed_and_gone_on(ctx: JobContext) -> None:
    connection.connection.commit()
    Effect.objects.create(job=ctx.id, note="in another transaction")


def _isolation(ctx: JobContext) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW transaction_isolation")
        return str(cursor.fetchone()[0])


def _fail(ctx: JobContext) -> None:
    raise ValueError("after its write")


def _deferred(ctx: JobContext) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMP TABLE deferred (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)"
            " ON COMMIT DROP"
        )
        cursor.execute("INSERT INTO deferred VALUES (1), (1)")


ATOMIC_DEEDS: dict[str, Any] = {
    "return": lambda ctx: None,
    "fail": _fail,
    "nested": _nested,
    "hooks": _hooks,
    "caught": _caught,
    "set_rollback": lambda ctx: transaction.set_rollback(True),
    "commit": lambda ctx: transaction.commit(),
    "raw commit": lambda ctx: connection.connection.commit(),
    "raw commit, then more": _committed_and_gone_on,
    "COMMIT": _raw("COMMIT"),
    "ROLLBACK": _raw("ROLLBACK"),
    "close": lambda ctx: connection.close(),
    "isolation": _isolation,
    "serialization": _raw(
        "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$"
    ),
    "deferred": _deferred,
}


# Timeouts ---------------------------------------------------------------------------


@task(
    takes_context=True,
    timeout=0.3,
    retries=Retry(max_attempts=2, base=0.05, jitter="none"),
)
def too_slow_twice(ctx: JobContext, gate: str) -> None:
    """Run longer than the timeout, in Python code."""
    ledger.write("start", ctx.id, ctx.attempt)
    _pass(gate)


# What a job leaves behind -----------------------------------------------------------


@task(takes_context=True, retries=ONCE)
def leaves(ctx: JobContext, what: str) -> None:
    """Leave something behind for the next job."""
    ledger.write("start", ctx.id, ctx.attempt, what)
    LEFTOVERS[what]()


@task(takes_context=True)
def looks_around(ctx: JobContext) -> None:
    """Note the state that this job found: of its session and of its process."""
    with connection.cursor() as cursor:
        cursor.execute(SESSION)
        (session,) = cursor.fetchall()
    found = {
        **dict(zip(SESSION_FIELDS, session, strict=True)),
        "autocommit": connection.get_autocommit() and connection.connection.autocommit,
        "isolation": str(connection.connection.isolation_level),
        "in_atomic": connection.in_atomic_block,
        "language": translation.get_language(),
        "django zone": timezone.get_current_timezone_name(),
        "precision": decimal.getcontext().prec,
    }
    ledger.write("found", ctx.id, note=found)


SESSION_FIELDS = (
    "user",
    "search_path",
    "zone",
    "statement_timeout",
    "temporary tables",
    "locks",
    "cursors",
    "prepared",
    "listens",
    "custom",
)
SESSION = """
SELECT current_user, current_setting('search_path'), current_setting('TimeZone'),
       current_setting('statement_timeout'),
       (SELECT count(*) FROM pg_class WHERE relpersistence = 't'
         AND relnamespace = pg_my_temp_schema()),
       (SELECT count(*) FROM pg_locks
         WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
       (SELECT count(*) FROM pg_cursors WHERE is_holdable),
       (SELECT count(*) FROM pg_prepared_statements WHERE from_sql),
       (SELECT count(*) FROM pg_listening_channels()),
       coalesce(current_setting('test.custom', true), '')
"""


def _sql(statement: str) -> Any:
    def run() -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    return run


def _raw_sql(statement: str) -> Any:
    def run() -> None:
        connection.ensure_connection()
        connection.connection.execute(statement)

    return run


def _open_transaction() -> None:
    connection.set_autocommit(False)
    Effect.objects.create(job=0, note="never committed")


def _aborted_transaction() -> None:
    _sql("BEGIN")()
    try:
        _sql("SELECT 1 / 0")()
    except Exception as error:
        ledger.write("broken", 0, note=str(error))


def _raw_autocommit() -> None:
    connection.ensure_connection()
    connection.connection.autocommit = False


def _server_cursor() -> None:
    Effect.objects.bulk_create(Effect(job=0) for _ in range(200))
    LEFT.append(Effect.objects.all().iterator(chunk_size=10))
    next(LEFT[-1])


def _bounded_fork_bomb() -> None:
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)


def _too_much_memory() -> None:
    # A limit of its own instead of the machine's: the allocation fails.
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, hard))
    try:
        LEFT.append(bytearray(8 << 30))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


# Keeps what is left alive.
LEFT: list[Any] = []

LEFTOVERS: dict[str, Any] = {
    # Of the session.
    "open transaction": _open_transaction,
    "aborted transaction": _aborted_transaction,
    "autocommit off": lambda: connection.set_autocommit(False),
    "raw autocommit off": _raw_autocommit,
    "role": _sql("SET ROLE pg_monitor"),
    "search_path": _sql("SET search_path = pg_catalog"),
    "zone": _sql("SET TIME ZONE 'Asia/Tokyo'"),
    "statement_timeout": _sql("SELECT set_config('statement_timeout', '1', false)"),
    "raw set": _raw_sql("SET test.custom = 'left'"),
    "temporary tables": _sql("CREATE TEMP TABLE left_behind (id int)"),
    "into temporary": _sql("SELECT 1 AS one INTO TEMP left_behind"),
    "locks": _sql("SELECT pg_advisory_lock(n) FROM generate_series(1, 100) n"),
    "held cursor": _sql("DECLARE left_behind CURSOR WITH HOLD FOR SELECT 1"),
    "server cursor": _server_cursor,
    "prepared": _sql("PREPARE left_behind AS SELECT 1"),
    "listens": _sql("LISTEN left_behind"),
    "behind another": _sql("SELECT 1; SET test.custom = 'left'"),
    # Of the process.
    "language": lambda: translation.activate("de"),
    "django zone": lambda: timezone.activate("Asia/Tokyo"),
    "precision": lambda: setattr(decimal.getcontext(), "prec", 3),
    "fork bomb": _bounded_fork_bomb,
    "memory": _too_much_memory,
    # What no process survives, or should.
    "sys.exit": lambda: sys.exit(3),
    # With the statuses of a stop, of one that left jobs behind, and of a recycle.
    "os._exit": lambda: os._exit(0),
    "os._exit, left behind": lambda: os._exit(3),
    "os._exit, recycle": lambda: os._exit(75),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: ctypes.string_at(0),
    "socket": lambda: LEFT.append(socket.socketpair()),
}
