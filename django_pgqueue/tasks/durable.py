"""
Durable: steps of a task whose results are kept, sleeps, and waits for signals.

    @task(takes_context=True)
    def onboard(ctx, user_id):
        account = ctx.step("account", create_account, user_id)
        ctx.sleep("3d")
        reply = ctx.wait_for("email.confirmed", key=user_id, timeout="7d")
        ctx.step("welcome", send_welcome, user_id, account, reply)

Each attempt runs the task from its beginning. A step that was done is not done again:
its result is read. So what stands outside of steps has no effects, and calls the
context in the same order each time. A sleep and a wait end the attempt: no worker is
held, and no attempt is burnt.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from django.db import connections, transaction

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import InvalidArgument, LeaseLost, WrongState, shown
from django_pgqueue.options.durations import Duration, as_timedelta
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.queues import dead_letters, durable
from django_pgqueue.queues.durable import Done
from django_pgqueue.tasks.database import (
    has_transaction,
    in_thread,
    queue_connection,
    twin,
)
from django_pgqueue.tasks.errors import way_out
from django_pgqueue.tasks.payload import (
    NAME_LENGTH_MAX,
    check_text,
    decode_value,
    encode_at,
    encode_result,
)
from django_pgqueue.tasks.raised import Reject, Snooze

T = TypeVar("T")


# How long a job snoozes at most before it looks again: who sends a signal may die
# between its commit and the wake.
LOOK_AGAIN_SECONDS = 3_600

# The job and the step whose function is running, in this thread or coroutine.
_within: ContextVar[tuple[int, str] | None] = ContextVar("step", default=None)


class Changed(Reject):
    """A task calls its context in another order than an earlier attempt of the job."""


class Durable:
    """What one attempt does, beside what those before it have done."""

    def __init__(self, job: int, task: str, *, is_atomic: bool) -> None:
        """
        Read what the job has done.

        Args:
            job: Its id; 0: there is no job, and nothing is kept.
            task: Its name, for errors.
            is_atomic: Whether it runs in one transaction.

        Raises:
            WrongState: It does: a sleep would roll back what it has done.
        """
        self._job, self._task = job, task
        self._place = 0
        # By name and key: those that were taken.
        self._signals: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        if is_atomic:
            raise WrongState(
                job,
                "running",
                "its task is declared with atomic=True, which is one transaction, and "
                "has no steps. Declare it without.",
            )
        self._done: dict[int, Done] = {}
        if job:
            with connections[self._alias].cursor() as cursor:
                self._done = {row.place: row for row in durable.read(cursor, job)}

    @property
    def _alias(self) -> str:
        return get_settings().database

    def step(
        self, name: str, function: Callable[..., T], *args: Any, **kwargs: Any
    ) -> T:
        """Call a function, once in all attempts of the job; return its result."""
        place, row = self._next(name, "step")
        if row is not None:
            value: T = _value(row.result)
            return value
        if not self._job:
            return function(*args, **kwargs)
        # What the function writes to this database is committed with its result.
        with transaction.atomic(using=self._alias):
            with self._as_within(name):
                value = function(*args, **kwargs)
            self._keep(place, name, value)
        return value

    async def astep(
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        *args: Any,
        **kwargs: Any,
    ) -> T:
        """Await a function, once in all attempts of the job; return its result."""
        place, row = self._next(name, "step")
        if row is not None:
            value: T = await in_thread(_value, row.result)
            return value
        with self._as_within(name):
            value = await function(*args, **kwargs)
        if self._job:
            await in_thread(self._keep, place, name, value)
        return value

    def sleep(self, duration: Duration) -> None:
        """Return once so long has passed since the first call; Snooze until then."""
        lasts = as_timedelta(duration, name="ctx.sleep()")
        self._refuse_transaction("sleep")
        place, row = self._next("sleep", "sleep")
        if not self._job or (row is not None and row.is_done):
            return
        with connections[self._alias].cursor() as cursor:
            seconds = self._seconds(cursor, row, place, "sleep", "sleep", lasts=lasts)
            if seconds is None or seconds <= 0:
                durable.done(cursor, self._job, place)
                return
        raise Snooze(seconds=seconds)

    def wait_for(self, name: str, key: object, timeout: Duration | None) -> Any:
        """Return the payload of a signal, or None after the timeout; else Snooze."""
        text = checked_key(key)
        lasts = None
        if timeout is not None:
            lasts = as_timedelta(timeout, name="ctx.wait_for(timeout=…)")
        self._refuse_transaction("wait")
        place, row = self._next(name, "wait", text)
        if not self._job:
            return None
        if row is not None and row.is_done:
            return self._taken(name, text, row.result)
        with connections[self._alias].cursor() as cursor:
            # Stored before the look: a signal from here on finds it.
            seconds = self._seconds(
                cursor, row, place, name, "wait", key=text, lasts=lasts
            )
            taken = self._signals[name, text]
            found = durable.find_signal(cursor, self._job, name, text, taken=taken)
            if found is not None:
                number, payload = found
                result = f'{{"signal":{number},"payload":{payload or "null"}}}'
                durable.done(cursor, self._job, place, result)
                return self._taken(name, text, result)
            if seconds is not None and seconds <= 0:
                durable.done(cursor, self._job, place)
                return None
        left = seconds if seconds is not None else LOOK_AGAIN_SECONDS
        raise Snooze(seconds=min(left, LOOK_AGAIN_SECONDS))

    def _next(self, name: str, kind: str, key: str = "") -> tuple[int, Done | None]:
        check_text("step or signal", "name", name)
        if (outer := self._outer()) is not None:
            raise WrongState(
                self._job,
                "running",
                f"it calls its context for the {kind} {name!r} within step {outer!r}. "
                f"The next attempt would not come to that call, and would take the "
                f"calls after it for it. Call it outside of steps.",
            )
        place, self._place = self._place, self._place + 1
        row = self._done.get(place)
        if row is not None and (row.name, row.kind, row.key) != (name, kind, key):
            raise Changed(
                f"{self._task}: call {place + 1} of its context is the "
                f"{_told(kind, name, key)}; in an earlier attempt of job {self._job} "
                f"it was the {_told(row.kind, row.name, row.key)}. Nothing was "
                f"repeated. Let the code do what it did, for jobs that have begun, and "
                f"redrive it."
            )
        return place, row

    @contextmanager
    def _as_within(self, step: str) -> Iterator[None]:
        token = _within.set((self._job, step))
        try:
            yield
        finally:
            _within.reset(token)

    def _outer(self) -> str | None:
        """Return the step of this job that calls, if one does."""
        job, step = _within.get() or (0, None)
        return step if job and job == self._job else None

    def _refuse_transaction(self, kind: str) -> None:
        """Raise WrongState where the end of the attempt would roll back its row."""
        if not self._job or get_settings().mode == "immediate":
            return
        if self._outer() is None and has_transaction(connections[self._alias]):
            raise WrongState(
                self._job,
                "running",
                f"a transaction is open, and a {kind} ends the attempt: that would "
                f"roll back when it began, and it would begin anew each time. Call it "
                f"outside of transaction.atomic().",
            )

    def _keep(self, place: int, name: str, value: Any) -> None:
        try:
            text = encode_result(value, get_settings().result_bytes_max)
        except ValueError as error:
            problem = f"returned what cannot be kept: {error}"
            raise InvalidArgument(
                task=self._task, path=f"step {name!r}", problem=problem
            ) from None
        with connections[self._alias].cursor() as cursor:
            self._seconds(cursor, None, place, name, "step", result=text)

    def _seconds(
        self, cursor: Cursor, row: Done | None, place: int, *said: str, **more: Any
    ) -> float | None:
        """Return how long it still lasts; stored, unless there is a row of it."""
        if row is not None:
            return row.seconds
        is_free, seconds = durable.store(cursor, self._job, place, *said, **more)
        if not is_free:
            # Another delivery has done it: what this one wrote with it is rolled back.
            raise LeaseLost(self._job, 0)
        return seconds

    def _taken(self, name: str, key: str, result: str | None) -> Any:
        if result is None:
            return None
        taken = decode_value(result)
        self._signals[name, key].append(taken["signal"])
        return taken["payload"]


def _told(kind: str, name: str, key: str) -> str:
    return f"{kind} {name!r} of key {key!r}" if key else f"{kind} {name!r}"


def _value(text: str | None) -> Any:
    return None if text is None else decode_value(text)


def signal(name: str, payload: Any = None, *, key: object = "") -> None:
    """
    Say that something has happened, to jobs that wait for it or will.

        signal("email.confirmed", {"at": now}, key=user_id)

    In the caller's transaction. A job takes the first one since it was enqueued; each
    is kept for as long as the archive.

    Args:
        name: Of the signal, 1 to 255 characters.
        payload: What ctx.wait_for() returns; anything that an argument may be.
        key: Whom it is about: a text, a number or a UUID.

    Raises:
        InvalidArgument: The name or the key is none, or the payload cannot travel.
        WrongDatabase: A transaction is open on another alias than the queue's.
    """
    check_text("step or signal", "name", name)
    text = encode_at("signal", "payload", payload)
    key_text = checked_key(key)
    with way_out("signal()", "asignal(…)"):
        connection = queue_connection("signal", get_settings().database)
        with connection.cursor() as cursor:
            durable.send(cursor, name, key_text, text)
    # After the commit: a job either has said by then that it waits, and is found, or
    # looks for the signal later than that.
    wake = functools.partial(_wake, connection, name, key_text)
    if has_transaction(connection):
        transaction.on_commit(wake, using=connection.alias, robust=True)
    else:
        wake()


def _wake(connection: Any, name: str, key: str) -> None:
    with connection.cursor() as cursor:
        moved = durable.wake(cursor, name, key)
    for hint in dead_letters.hints(moved):
        wake_after_commit(connection, hint)


asignal = twin(signal)


def checked_key(key: object) -> str:
    """Return the key of a signal as text; raise InvalidArgument."""
    from uuid import UUID

    text = str(key)
    is_one = isinstance(key, (str, int, UUID)) and not isinstance(key, bool)
    if not is_one or len(text) > NAME_LENGTH_MAX:
        problem = (
            f"is {shown(key)}; it must be a text, a number or a UUID, of up to "
            f"{NAME_LENGTH_MAX} characters"
        )
        raise InvalidArgument(task="signal", path="key", problem=problem)
    encode_at("signal", "key", text)
    return text
