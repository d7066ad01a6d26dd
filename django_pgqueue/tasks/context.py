"""Context: the job as its task sees it, and what the task may say to it meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from django_pgqueue.exceptions import WrongState
from django_pgqueue.options.durations import Duration, as_timedelta
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.tasks.database import in_thread, twin
from django_pgqueue.tasks.raised import AskedAgain, Reject, RetryLater

if TYPE_CHECKING:
    from django_pgqueue.tasks.durable import Durable
    from django_pgqueue.tasks.output import JobLog, Output

T = TypeVar("T")

# Characters kept of the note of a progress report, and the largest of its numbers.
NOTE_CHARACTERS_MAX = 500
NUMBER_MAX = 10**15

# The moment of the tick that a job is of, in its headers.
TICK = "pgqueue.tick"

# A lease that a lost host holds keeps its job from everybody for this long at most.
EXTENSION_MAX = timedelta(days=1)


class JobControl:
    """
    What a context does to its job. Any thread may call it.

    This one is that of a call without a worker: it keeps what is said, and no more. A
    worker's is in worker/run/control.py. Each call raises WrongState once the job has
    ended.

    Attributes:
        has_word: Whether say() was called, and not refused.
        word: What it was called with.
        is_settled: Whether that is written. None: not yet; False: the lease was lost.
        progress: The last report.
        emitted: The values that were emitted.
    """

    __slots__ = ("emitted", "has_word", "is_settled", "progress", "word")

    def __init__(self) -> None:
        self.is_settled: bool | None = None
        self.progress: Mapping[str, Any] | None = None
        self.emitted: list[tuple[int, str]] = []
        self.has_word = False
        self.word: BaseException | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has asked the job to stop."""
        return False

    def extend(self, duration: timedelta | None) -> None:
        """Let the lease end no sooner than this from now; LeaseLost."""

    def report(self, progress: Mapping[str, Any]) -> None:
        """Keep what the task says about its progress; returns at once."""
        self.progress = progress

    def emit(self, values: Sequence[tuple[int, str]]) -> None:
        """
        Store what the task emits, soon; returns at once.

        Args:
            values: Of each, its number in this delivery, which grows, and JSON text.

        Raises:
            LeaseLost: The job is known to be another worker's by now.
        """
        if self.has_word:
            raise has_ended(0)
        self.emitted += values

    def say(self, error: BaseException | None) -> None:
        """
        Settle the job while its task runs; returns when that is committed.

        Args:
            error: What raising it would mean; None: acked.

        Raises:
            LeaseLost: The job is another worker's by now; nothing was written.
            WrongState: It has ended already.
        """
        if self.has_word:
            raise has_ended(0)
        self.has_word, self.word = True, error

    def ack_within(self, cursor: Cursor, performed: Any) -> bool | None:
        """
        Write the ack of an atomic task in its own transaction, not yet committed.

        Returns:
            What Performed.settled is once it is committed: None where the caller
            writes the ack, on the same connection, as testing.drain() does.

        Raises:
            LeaseLost: The job is another worker's by now.
        """
        return None

    def committed(self) -> None:
        """Note that the transaction of ack_within() is committed."""

    def is_applied(self) -> bool:
        """Find out whether it is, where COMMIT got no answer; waits until it knows."""
        return False


# Two threads of a task may be the first to emit.
_first = threading.Lock()


def _new_log() -> JobLog:
    from django_pgqueue.tasks.output import JobLog

    return JobLog()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """
    Passed as the first argument to a task declared with takes_context=True.

    Called inline, without a job, a task gets a context with id 0 and attempt 1; its
    methods then change nothing but the context. Use it while the task runs: afterwards
    extend(), progress(), emit(), ack(), reject() and retry() raise WrongState and touch
    nothing.
    """

    id: int  # The same through every retry and redrive.
    task: str
    queue: str
    attempt: int  # 1 for the first.
    max_attempts: int
    headers: Mapping[str, Any] = field(default_factory=dict)
    # Names the job to other systems, so that they can recognise a repeat:
    # "<installation>-<id>", the same through every retry and redrive. One whose
    # arguments were edited after it had run is another piece of work: ".<edits>" is
    # added.
    idempotency_key: str
    tags: tuple[str, ...] = ()
    ack_policy: str | None = None  # None: without a job, whatever is said is right.
    is_atomic: bool = False  # Whether it runs in one transaction with its ack.
    control: JobControl = field(default_factory=JobControl, repr=False, compare=False)
    lines: JobLog = field(default_factory=_new_log, repr=False, compare=False)
    _durable: Durable | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _output: Output | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def is_last_attempt(self) -> bool:
        """Whether a failure of this attempt makes the job a dead letter."""
        return self.attempt >= self.max_attempts

    @property
    def tick(self) -> datetime | None:
        """
        When the tick was due that this job is of, in UTC.

        None where it is of no schedule.

        The same through every retry, and however late the job runs: what a nightly
        task is about follows from this, and not from the clock.
        """
        text = self.headers.get(TICK)
        try:
            return datetime.fromisoformat(text) if isinstance(text, str) else None
        except ValueError:
            return None  # Somebody has written the row by hand.

    @property
    def cancelled(self) -> bool:
        """
        Whether somebody has asked this job to stop.

        A task that looks here can tidy up and return, or raise Cancel. One that is
        declared with async def is interrupted besides, by asyncio.CancelledError.
        """
        return self.control.is_cancelled

    def step(
        self, name: str, function: Callable[..., T], /, *args: Any, **kwargs: Any
    ) -> T:
        """
        Call a function, once in all attempts of this job, and return its result.

        An attempt that comes later reads the result. What the function writes to the
        database of the jobs is committed with it, or not at all; other effects may
        happen twice, if the process dies before that.

        Args:
            name: Of the step, 1 to 255 characters. The steps of a task come in the
                same order in each attempt.
            function: What does it; its result must be able to travel.
            args: Its positional arguments.
            kwargs: Its keyword arguments.

        Raises:
            Reject: An earlier attempt of this job had another step here: the code was
                changed. The job becomes a dead letter, and nothing is repeated.
            LeaseLost: Another worker has done the step; what it wrote here is undone.
            WrongState: The task is declared with atomic=True, or this is within the
                function of another step.
            InvalidArgument: The result cannot be kept, or is too large.
        """
        return self._durable_of().step(name, function, *args, **kwargs)

    async def astep(
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> T:
        """
        Await a function, once in all attempts of this job, and return its result.

        As step(), but for a coroutine, whose effects are of no transaction: they may
        happen twice, if the process dies before its result is stored.
        """
        own = await in_thread(self._durable_of)
        return await own.astep(name, function, *args, **kwargs)

    def sleep(self, duration: Duration) -> None:
        """
        Go on once so long has passed since the first attempt came here.

        The attempt ends, and is given back: no worker is held. The next one runs the
        task from its beginning and passes over what was done.

        Args:
            duration: Up to 366 days.

        Raises:
            Snooze: It is not over. Do not catch it.
            Reject: As step().
            WrongState: As step(), or a transaction is open.
        """
        self._durable_of().sleep(duration)

    asleep = twin(sleep)

    def wait_for(
        self, name: str, *, key: object = "", timeout: Duration | None = None
    ) -> Any:
        """
        Go on once signal(name, key=key) was called, and return its payload.

        One that was called since this job was enqueued counts, also before it came
        here; each is taken once by a job. No worker is held meanwhile.

        Args:
            name: Of the signal.
            key: Whom it is about: a text, a number or a UUID.
            timeout: None is returned after this duration; None: never.

        Raises:
            Snooze: There was none yet. Do not catch it.
            Reject, WrongState: As sleep().
        """
        return self._durable_of().wait_for(name, key, timeout)

    await_for = twin(wait_for)

    def _durable_of(self) -> Durable:
        if self._durable is None:
            from django_pgqueue.tasks.durable import Durable

            # Frozen for its users; this is ours.
            own = Durable(self.id, self.task, is_atomic=self.is_atomic)
            object.__setattr__(self, "_durable", own)
        assert self._durable is not None
        return self._durable

    def extend(self, duration: Duration | None = None) -> None:
        """
        Make sure that the job stays this worker's for *duration* from now.

        A worker renews the leases of its jobs by itself; this is for code that keeps
        the whole process from running for longer than LEASE_SECONDS, and for whoever
        wants to know that the job is still his. Never makes a lease end sooner.

        Args:
            duration: By the database's clock; LEASE_SECONDS by default. At most a day:
                if the whole host is lost, nobody else runs the job for that long.

        Raises:
            ValueError: No duration, or more than a day.
            LeaseLost: The job is another worker's by now.
            WrongState: It has ended.
        """
        self.control.extend(_checked_extension(duration))

    aextend = twin(extend, run=asyncio.to_thread)

    def progress(
        self, done: float, total: float | None = None, note: str | None = None
    ) -> None:
        """
        Say how far the task is, for the admin and the command line.

        Costs next to nothing: what is said is stored about once a second, and the last
        of it when the job ends.

        Args:
            done: A number, of whatever is counted; up to 10^15.
            total: How many there are; None: nobody knows.
            note: A few words; 500 characters are kept.

        Raises:
            TypeError: Not numbers, or the note is no text.
            ValueError: A number is beyond that, or no number (NaN).
            WrongState: The job has ended.
        """
        progress: dict[str, Any] = {"done": _checked_number("done", done)}
        if total is not None:
            progress["total"] = _checked_number("total", total)
        if note is not None:
            progress["note"] = _checked_note(note)
        self.control.report(progress)

    async def aprogress(
        self, done: float, total: float | None = None, note: str | None = None
    ) -> None:
        """As progress(), which does not wait."""
        self.progress(done, total, note)

    def emit(self, value: Any) -> None:
        """
        Tell a part of the result to whoever waits for it, by result.stream().

            for token in model.generate(prompt):
                ctx.emit(token)

        Returns at once: it is stored within about 50 ms, together with what else the
        process emits, by a connection of its own. So it is told before the task's own
        transaction commits, and stays if that rolls back; an attempt that fails leaves
        what it has emitted, and the next one begins anew.

        Args:
            value: Anything that an argument may be; as JSON up to 64 KiB. An attempt
                emits 100,000 values and 8 MiB at most.

        Raises:
            InvalidArgument: It cannot travel.
            PayloadTooLarge: It takes more than 64 KiB.
            OutputFull: The attempt has emitted as much as it may.
            LeaseLost: The job is another worker's by now; what it emits is dropped.
            WrongState: The job has ended, as one with ack_policy="first" has from the
                beginning.
        """
        if self._output is None:
            from django_pgqueue.tasks.output import Output

            with _first:
                if self._output is None:
                    # Frozen for its users; this is ours.
                    object.__setattr__(self, "_output", Output(self.id, self.task))
        assert self._output is not None
        self._output.emit(value, self.control.emit)

    async def aemit(self, value: Any) -> None:
        """As emit(), which does not wait."""
        self.emit(value)

    def log(self, message: str, *args: object) -> None:
        """
        Write a line for whoever looks at the job, in the admin or by `pgqueue show`.

            ctx.log("%d of %d rows are new", new, total)

        Costs no query: the lines of an attempt are stored with its end. Those of an
        attempt that fails stand in its entry of ``errors``, those of one that succeeds
        in an entry of their own, of kind "log". An attempt that snoozes, or whose
        process dies, leaves none. Of more than 200 lines or 16 KiB, the first and the
        latest are kept.

        Args:
            message: Text, as that of logging: with args, ``message % args``. 1,000
                characters are kept.
            args: What is put into it.

        Raises:
            TypeError: The message is no text, or args do not fit into it.
        """
        if not isinstance(message, str):
            raise TypeError(f"log({type(message).__name__}): it must be text.")
        self.lines.add(message % args if args else message)

    async def alog(self, message: str, *args: object) -> None:
        """As log(), which does not wait."""
        self.log(message, *args)

    def ack(self) -> None:
        """
        Say that the job is done; it is written and committed when this returns.

        For ack_policy="manual". The task may go on; what it raises then is noted in
        the archived row, and nothing is retried.

        Raises:
            LeaseLost: The job is another worker's by now; nothing was written.
            WrongState: It has ended, or another ack_policy speaks for it.
        """
        self._say("ack", None)

    def reject(self, why: str = "rejected by the task") -> None:
        """Make the job a dead letter, as raising Reject does; otherwise as ack()."""
        self._say("reject", Reject(why))

    def retry(self, delay: Duration | None = None) -> None:
        """
        Say that this attempt failed and let the job run again; otherwise as ack().

        The last attempt makes it a dead letter.

        Args:
            delay: Until the next attempt; by default what the task's Retry says.
        """
        self._say("retry", AskedAgain() if delay is None else RetryLater(delay))

    aack = twin(ack, run=asyncio.to_thread)

    areject = twin(reject, run=asyncio.to_thread)

    aretry = twin(retry, run=asyncio.to_thread)

    def _say(self, word: str, error: BaseException | None) -> None:
        if self.ack_policy not in (None, "manual"):
            raise WrongState(
                self.id,
                "running",
                f"{word}() is for tasks declared with ack_policy='manual'; that of "
                f"{self.task} is {self.ack_policy!r}.",
            )
        self.control.say(error)


def inline_context(task: str) -> JobContext:
    """Return the context of a call without a job."""
    return JobContext(
        id=0,
        task=task,
        queue="",
        attempt=1,
        max_attempts=1,
        idempotency_key=f"inline-{uuid4()}",
    )


def has_ended(job_id: int) -> WrongState:
    """Return the error of a context that is used after its job's end."""
    return WrongState(
        job_id, "ended", "its context can be used until the job is settled, once."
    )


def _checked_extension(duration: Duration | None) -> timedelta | None:
    if duration is None:
        return None
    extension = as_timedelta(duration, name="extend(…)", zero=False)
    if extension > EXTENSION_MAX:
        raise ValueError(f"extend({duration!r}): the longest is one day.")
    return extension


def _checked_number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(
            f"progress({name}={type(value).__qualname__}): it must be a number."
        )
    # False for NaN, too.
    if not -NUMBER_MAX <= value <= NUMBER_MAX:
        raise ValueError(f"progress({name}=…): it must be from -10^15 to 10^15.")
    return value


def _checked_note(note: object) -> str:
    if not isinstance(note, str):
        raise TypeError(f"progress(note={type(note).__qualname__}): it must be text.")
    # What PostgreSQL cannot store is shown escaped: NUL, and surrogates.
    text = note[:NOTE_CHARACTERS_MAX].replace("\x00", "\\x00")
    return text.encode(errors="backslashreplace").decode()
