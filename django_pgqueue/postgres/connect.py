"""
A raw psycopg connection from Django's DATABASES.

Each loop of a worker owns one. It is in autocommit, so that every statement is its
own short transaction; it is READ COMMITTED whatever the role's default is, since a
claim under REPEATABLE READ fails with 40001 instead of skipping what changed; and it
notices a dead peer within about half a minute instead of two hours.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from django_pgqueue.postgres.limits import Plans, limit

# What libpq is told unless OPTIONS in DATABASES says otherwise. read-write: after a
# failover, a connection to what is now a standby is refused instead of used.
DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # Milliseconds.
    "target_session_attrs": "read-write",
}

APPLICATION_NAME_BYTES_MAX = 63

# Locks: none. One round trip; the SET is sent only where the role's default differs,
# and never on a server connection that a pooler shares: there it would be others'.
ISOLATION = "SHOW default_transaction_isolation"
READ_COMMITTED = "SET default_transaction_isolation = 'read committed'"

# Locks: none. A pooler that lends its server connections tells its clients a process id
# of its own making, since the server's changes.
BACKEND_PID = "SELECT pg_backend_pid()"


def _sets(settings: Mapping[str, str], *, local: bool = False) -> str:
    """Return what sets them for the session, or for the transaction alone."""
    scope = "SET LOCAL" if local else "SET"
    return ";\n".join(f"{scope} {name} = {value}" for name, value in settings.items())


# Locks: none. Of a session that is ours alone. Statements that are prepared keep their
# plans while tables grow from nothing to millions of rows, so the plan must be the one
# that holds for both: rows by index, batches by hash, made without looking at the
# parameters or at statistics that may be of an empty table. And never compiled: before
# version 18, a plan with what is turned off is taken for the dearest there is, and
# compiling it takes half a second.
BY_INDEX_OR_HASH = {"enable_seqscan": "off", "enable_nestloop": "off", "jit": "off"}
STEADY = _sets({**BY_INDEX_OR_HASH, "plan_cache_mode": "force_generic_plan"})
STEADY_ONCE = _sets(BY_INDEX_OR_HASH, local=True)

# Locks: none. For statements that look for the first rows of an index in its order: a
# plan made for a few rows reads all of another index and sorts them.
ALONG_INDEX = {
    **Plans.IN_ORDER.value,
    "enable_sort": "off",
    "enable_incremental_sort": "off",
}
IN_ORDER = _sets(ALONG_INDEX)
IN_ORDER_ONCE = _sets(ALONG_INDEX, local=True)

# Locks: none. A commit of a session that flushes later is written by the server within
# three times its wal_writer_delay. FLUSH makes that at once: what is committed after it
# in the log, with the setting of the role or the server, is on disk with all before it.
# A message is the cheapest thing to commit; logical decoding shows it to those who ask.
# Sent as one, the statements are one transaction without a BEGIN: one that is cancelled
# half-way leaves no transaction behind, which nobody would end.
FLUSH_LATER = "SET synchronous_commit = off"
FLUSH = """
SET LOCAL synchronous_commit TO DEFAULT;
SELECT pg_logical_emit_message(true, 'pgqueue', '')
"""

# A statement is prepared when it is run for the second time.
PREPARE_AFTER = 1


def connect(alias: str, *, name: str) -> psycopg.Connection[tuple[Any, ...]]:
    """
    Open a connection of our own to the database *alias*.

    Args:
        alias: A key of DATABASES.
        name: The application_name that operators see in pg_stat_activity; cut to 63
            bytes.

    Raises:
        psycopg.OperationalError: The server cannot be reached, or is read-only.
    """
    params = connection_params(alias)
    role = params.pop("assume_role", None)
    params["application_name"] = name[:APPLICATION_NAME_BYTES_MAX]
    try:
        connection = psycopg.connect(**params, autocommit=True)
    except psycopg.Error as error:
        # An attempt that timed out has a socket, and perhaps a session of the server.
        # The error's frames hold it, and a cycle holds them until the garbage
        # collector comes by; an idle worker may not see it for hours.
        traceback.clear_frames(error.__traceback__)
        raise
    try:
        if role:
            statement = sql.SQL("SET ROLE {}").format(sql.Identifier(role))
            connection.execute(statement)
        if not is_read_committed(connection) and not is_pooled(connection):
            connection.execute(READ_COMMITTED)
    except BaseException:
        connection.close()
        raise
    return connection


def is_pooled(connection: psycopg.Connection[Any]) -> bool:
    """
    Whether something between us and the server shares its connections.

    A pooler answers the start of a session with a process id of its own making; the
    server then tells another one.
    """
    row = connection.execute(BACKEND_PID).fetchone()
    return row != (connection.info.backend_pid,)


def is_read_committed(connection: psycopg.Connection[Any]) -> bool:
    """Whether statements of the session run at READ COMMITTED, as claims have to."""
    return connection.execute(ISOLATION).fetchone() == ("read committed",)


def may_prepare(alias: str) -> bool:
    """Whether the project leaves it to us to prepare statements on *alias*."""
    from django.db import connections

    options = connections[alias].settings_dict["OPTIONS"]
    return "prepare_threshold" not in options


def connection_params(alias: str) -> dict[str, Any]:
    """
    Return what psycopg.connect needs for *alias*, from Django's own settings.

    Django's cursor class and adapters are left out: storage code fetches plain
    psycopg values. prepare_threshold is Django's: None, unless OPTIONS sets it,
    because prepared statements break behind older poolers; a steady Link raises it
    where there is none.
    """
    from django.db import connections

    wrapper = connections[alias]
    params = dict(wrapper.get_connection_params())
    for name in ("cursor_factory", "context"):
        params.pop(name, None)
    role = wrapper.settings_dict["OPTIONS"].get("assume_role")
    if role:
        params["assume_role"] = role
    return {**DEFAULTS, **params}


# Of a link with one user.
ALWAYS: AbstractContextManager[Any] = nullcontext()


class Link:
    """
    One connection of one loop: opened when first used, reopened after it broke.

    Not shared between threads, except that any thread may read ``is_open``.

    Args:
        alias: A key of DATABASES.
        name: The application_name.
        steady: Plan the same way whatever the statistics say, where the session is
            ours alone: for the few statements that run all day.
        in_order: Of a steady link: its statements go along an index, in its order.
        flushes_later: Of a steady link: commits need not wait for the disk, since
            flush() is called soon after.
        lock_seconds: Of a steady link: a statement that waits longer than that for a
            lock raises LockNotAvailable. None: it waits.
    """

    def __init__(
        self,
        alias: str,
        *,
        name: str,
        steady: bool = False,
        in_order: bool = False,
        flushes_later: bool = False,
        lock_seconds: float | None = None,
    ) -> None:
        self._alias = alias
        self._name = name
        self._steady = steady
        self._in_order = in_order
        self._flushes_later = flushes_later
        self._patience: dict[str, str] = {}
        if lock_seconds is not None:
            self._patience["lock_timeout"] = f"{lock_seconds * 1_000:.0f}"
        self._has_late_flush = False
        self._has_steady_plans = False
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        # Taken for each round of a loop.
        self.turn = ALWAYS

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that is not known to be broken."""
        return self._connection is not None and not self._connection.closed

    @property
    def is_idle(self) -> bool:
        """
        Whether it is open and in no transaction, as it has to be between statements.

        Of a transaction that nobody ends all that follows is a part, or is refused.
        """
        connection = self._connection
        return (
            connection is not None
            and not connection.closed
            and connection.info.transaction_status == TransactionStatus.IDLE
        )

    @property
    def is_waiting(self) -> bool:
        """Whether its user, being busy, waits for the server."""
        connection = self._connection
        if connection is None or connection.closed:
            return True  # It is being opened.
        return connection.info.transaction_status == TransactionStatus.ACTIVE

    @property
    def connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        """
        Return the open connection, opening one when there is none.

        Raises:
            psycopg.OperationalError: It cannot be opened.
        """
        if self._connection is None or self._connection.closed:
            self._has_steady_plans = self._has_late_flush = False
            self._connection = connect(self._alias, name=self._name)
            if self._steady:
                try:
                    self._has_steady_plans = self._make_steady()
                except BaseException:
                    # Half of the settings would stay for as long as it is open.
                    self.drop()
                    raise
        return self._connection

    def cursor(self, *, binary: bool = False) -> psycopg.Cursor[tuple[Any, ...]]:
        """Return a cursor on the open connection; *binary* saves the server work."""
        return self.connection.cursor(binary=binary)

    @contextmanager
    def steady_cursor(
        self, *, binary: bool = False
    ) -> Iterator[psycopg.Cursor[tuple[Any, ...]]]:
        """
        Lend a cursor for one statement with a plan that holds for any table.

        In a session that a pooler may share, that takes a transaction of its own.
        """
        connection = self.connection
        if self._has_steady_plans:
            yield connection.cursor(binary=binary)
            return
        with connection.transaction(), connection.cursor(binary=binary) as cursor:
            connection.execute(STEADY_ONCE, prepare=False)
            if self._in_order:
                connection.execute(IN_ORDER_ONCE, prepare=False)
            if self._patience:
                connection.execute(_sets(self._patience, local=True), prepare=False)
            yield cursor

    @contextmanager
    def transaction(
        self, seconds: int | None = None, plans: Plans = Plans.ANY
    ) -> Iterator[psycopg.Cursor[tuple[Any, ...]]]:
        """
        Lend a cursor in a transaction.

        Args:
            seconds: How long a statement may take; None: as long as it likes.
            plans: Which scans the planner may choose where *seconds* are given.
        """
        connection = self.connection
        with connection.transaction(), connection.cursor() as cursor:
            if seconds is not None:
                limit(cursor, seconds=seconds, plans=plans)
            yield cursor

    def _make_steady(self) -> bool:
        """Prepare statements, and plan by index, if the session is ours alone."""
        connection = self._connection
        assert connection is not None
        if not may_prepare(self._alias) or is_pooled(connection):
            return False
        connection.execute(STEADY, prepare=False)
        if self._in_order:
            connection.execute(IN_ORDER, prepare=False)
        if self._patience:
            connection.execute(_sets(self._patience), prepare=False)
        if self._flushes_later:
            try:
                connection.execute(FLUSH, prepare=False)
            except psycopg.errors.InsufficientPrivilege:
                pass  # Every commit waits for the disk, then.
            else:
                connection.execute(FLUSH_LATER)
                self._has_late_flush = True
        connection.prepare_threshold = PREPARE_AFTER
        return True

    @property
    def has_late_flush(self) -> bool:
        """Whether what was committed here is to be followed by flush()."""
        return self._has_late_flush

    def flush(self) -> None:
        """Return when all that was committed is as safe as any commit here is."""
        if self._has_late_flush:
            self.connection.execute(FLUSH, prepare=False)

    def drop(self) -> None:
        """Close the connection, whatever state it is in; the next use reopens it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def leave(self) -> None:
        """Close the connection, which is not needed now."""
        self.drop()


class SharedLink(Link):
    """
    One connection of several loops, each of which uses it while it has the turn.

    It is steady and in order, because the loops that run statements all day need that
    and the others lose nothing: they look rows up by key. It never flushes later, so
    that the outcomes written here are on disk when they are committed. No statement
    keeps the others from their turn for longer than *statement_seconds*, where the
    session is ours alone.
    """

    def __init__(
        self,
        alias: str,
        *,
        name: str,
        statement_seconds: float,
        lock_seconds: float | None = None,
    ) -> None:
        super().__init__(
            alias, name=name, steady=True, in_order=True, lock_seconds=lock_seconds
        )
        self._statement_seconds = statement_seconds
        self.turn = Turn()

    @property
    def connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Return the open connection, opening one when there is none."""
        with self.turn:
            is_new = not self.is_open
            connection = super().connection
            if is_new and not is_pooled(connection):
                milliseconds = int(self._statement_seconds * 1_000)
                connection.execute(f"SET statement_timeout = {milliseconds:d}")
            return connection

    def drop(self) -> None:
        """Close the connection, whatever state it is in; the next use reopens it."""
        with self.turn:
            super().drop()

    def leave(self) -> None:
        """Leave the connection to the others."""


class Turn:
    """
    A lock that a thread may take several times.

    Whoever waits for it gets it before a thread that gives it back and wants it again.
    """

    def __init__(self) -> None:
        self._next, self._lock = threading.Lock(), threading.Lock()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        """Wait for the turn, unless this thread has it."""
        me = threading.get_ident()
        if self._owner != me:
            with self._next:
                self._lock.acquire()
            self._owner = me
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        """Give it back, when this thread took it as often as it gave it back."""
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._lock.release()
