"""
Enqueuer: every way to store jobs of a task, in the caller's transaction.

The first hop of a job's life. delay() binds the arguments to the function's signature,
checks them, and stores one job: it commits with the data that it is about, or was
never there.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, cast

from django.db import transaction

from django_pgqueue import signals
from django_pgqueue.bounds import QUEUE_DEFAULT
from django_pgqueue.conf import Settings, get_settings
from django_pgqueue.exceptions import (
    InvalidArgument,
    InvalidOption,
    PayloadTooLarge,
    raised_as,
)
from django_pgqueue.options.durations import Duration
from django_pgqueue.options.lanes import Lane
from django_pgqueue.options.marks import check_tags
from django_pgqueue.options.table import takes
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.queues.enqueue import Placement, enqueue, enqueue_many
from django_pgqueue.tasks import payload
from django_pgqueue.tasks.accumulate import NO_KEY, check_key
from django_pgqueue.tasks.database import in_thread, open_alias, queue_connection, twin
from django_pgqueue.tasks.errors import FIRST_ERRORS, name_way_out, way_out
from django_pgqueue.tasks.options import (
    OF_USING,
    CallOptions,
    UsingKeywords,
    problem_of_lane,
)
from django_pgqueue.tasks.result import JobResult
from django_pgqueue.tasks.spread import Item, as_spread, keyless

if TYPE_CHECKING:
    from django.db.models import QuerySet

    # Only unique= and from_queryset() need these: their first call loads them.
    from django_pgqueue.queues.enqueue_rows import KeyPart
    from django_pgqueue.queues.unique import Dedup
    from django_pgqueue.queues.unique import Stored as UniqueStored
    from django_pgqueue.queues.workflows import NewStep
    from django_pgqueue.tasks import store_unique
    from django_pgqueue.tasks.canvas import Signature
    from django_pgqueue.tasks.declared import DeclaredTask

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


# What gives a waiting job another time, so that it may be due.
MOVED = ("rescheduled", "debounced")

# Items of bulk() that are written as JSON together. A divisor of BULK_ROWS_MAX, and so
# few that all of them together seldom exceed what one may take.
ITEMS_TOGETHER = 250


def _in_span(store: F) -> F:
    """Let what *store* stores be sent by a span, where PGQUEUE["TRACE"] is on."""

    @functools.wraps(store)
    def stored(
        self: Any, placement: Placement, settings: Settings, *args: Any, **kwargs: Any
    ) -> Any:
        if not settings.trace:
            return store(self, placement, settings, *args, **kwargs)
        from django_pgqueue.tasks import tracing

        with tracing.sending(
            "enqueue", placement.queue, {"pgqueue.task": placement.task}
        ) as span:
            headers = tracing.carry(placement.headers)
            if headers is not placement.headers:
                placement = replace(placement, headers=headers)
            found = store(self, placement, settings, *args, **kwargs)
            if isinstance(found, int):
                tracing.stored(span, (), found)
            else:
                results: list[Any] = found if isinstance(found, list) else [found]
                tracing.stored(span, [result.id for result in results])
        return found

    return cast("F", stored)


async def _patiently(call: functools.partial[T]) -> T:
    """Call in the thread of Django's connections what an enqueuer does, given room."""
    if call.args[0]._queue not in get_settings().queues:
        return await in_thread(call)
    from django_pgqueue.tasks import depth

    return await depth.patiently(call)


class Enqueuer(Generic[P, R]):
    """A task together with what one call says about its jobs."""

    __slots__ = ("_kept", "_lane", "_options", "_rule", "_task")

    # Stores the one job of delay().
    _enqueue = staticmethod(enqueue)

    def __init__(self, task: DeclaredTask, options: CallOptions) -> None:
        self._task = task
        self._options = options
        # What becomes of a second call.
        self._rule = options.rule_for(task.options)
        # Where the jobs wait for one another.
        self._lane = options.lane_for(task.options)
        # The placement of the last job, and the settings that it is by.
        self._kept: tuple[Settings, Placement] | None = None

    @takes("using()", InvalidOption, OF_USING)
    def using(self, **options: Unpack[UsingKeywords]) -> Enqueuer[P, R]:
        """
        Return this with other options; what is not given stays.

        unique, debounce and throttle each say what becomes of a second call; one of
        them takes the place of what the task, or an earlier using(), has said.

        Args:
            options: Those of the table; help() and the reference tell each.

        Raises:
            InvalidOption: A value is out of its range, two contradict each other, or
                the task has no use for one.
        """
        accumulate_key = None
        if self._task.options.accumulate is not None:
            key = options.pop("key", None)
            accumulate_key = None if key is None else check_key(key)
        changed = self._options.with_(**options)
        _check_rule(self._task, changed)
        if accumulate_key is not None:
            changed = replace(changed, accumulate_key=accumulate_key)
        return Enqueuer(self._task, changed)

    def spread(
        self, over: Duration, *, by: str | Sequence[str] | None = None
    ) -> Enqueuer[P, R]:
        """
        Return this with a window over which the next jobs are due.

            refresh.spread("24h", by="customer_id").bulk(items)

        The window begins at run_after, or when the jobs are stored, on the database's
        clock; a job is due in it, never before its start, and before its end.

        Args:
            over: How long the window is: more than nothing, up to 366 days.
            by: A parameter of the task, or up to 10: the moment follows from their
                values, and is the same on every run. None: each is sampled anew.

        Raises:
            InvalidOption: The window is out of its range, or longer than the jobs
                last until they expire; or the task has no such parameter; or it
                accumulates, or the call is debounced, which say when jobs run, too.
        """
        if self._task.options.accumulate is not None:
            raise InvalidOption(
                f"{self._task.name} has accumulate=…, whose calls wait for "
                f"one another; spread() would part them. Say one of the two."
            )
        spread = as_spread(self._task.parameters, over, by)
        options = self._options.with_(spread=spread)
        _check_rule(self._task, options)
        return Enqueuer(self._task, options)

    def on_commit(self, *, using: str | None = None) -> Deferred[P, R]:
        """
        Enqueue only after the open transaction has committed.

        For a transaction on another database than the jobs are in. A crash between
        the commit and the enqueue loses the job; inside one database, plain delay()
        cannot.

        Args:
            using: The alias whose commit to wait for; by default the one that has a
                transaction open.
        """
        return Deferred(self, using)

    def delay(self, /, *args: P.args, **kwargs: P.kwargs) -> JobResult[R]:
        """
        Store one job, in the caller's transaction: one query.

        With unique, debounce or throttle, ``created`` and ``conflict`` of what this
        returns say what happened.

        Raises:
            DuplicateJob: Its key is taken, and Unique(conflict="error").
            InvalidArgument: The arguments do not fit the function, or cannot travel.
            PayloadTooLarge: They exceed PGQUEUE['PAYLOAD_BYTES_MAX'].
            QueueFull: The queue holds as many jobs as PGQUEUE['QUEUES'] says.
            TransactionAborted: The open transaction and another one have waited for
                each other's keys; roll it back and run it again.
            WrongDatabase: A transaction is open on another alias than the queue's.
        """
        return self._delay(args, kwargs)

    enqueue = delay

    adelay = twin(delay, run=_patiently)

    aenqueue = adelay

    def _delay(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> JobResult[R]:
        """Store one job whose arguments are data; as delay()."""
        try:
            return self._store(*self._checked(args, kwargs, get_settings()))
        except FIRST_ERRORS as error:
            name_way_out(error, "delay()", "task.adelay(…)")
            raise

    def bulk(self, items: Iterable[Item]) -> list[JobResult[R]]:
        """
        Store one job per item: all or nothing, one statement per 5,000.

        Args:
            items: For each job a dict of keyword arguments, or a list or tuple of
                positional ones. Empty: nothing happens.

        Returns:
            One for each item, in their order. With unique, debounce or throttle, items
            of one key meet each other, too, in their order.

        Raises:
            DuplicateJob, TransactionAborted: As delay(); nothing is stored.
            InvalidArgument: An item does not fit, before anything is stored; the
                message says which.
            QueueFull: The queue has no room for all of them.
        """
        return self._bulk(items, [])

    async def abulk(self, items: Iterable[Item]) -> list[JobResult[R]]:
        """Store one job per item from async code; as bulk()."""
        return await _patiently(functools.partial(Enqueuer._bulk, self, items, []))

    @way_out("bulk()", "task.abulk(…)")
    def _bulk(
        self,
        items: Iterable[Item],
        kept: list[tuple[Placement, Settings, list[Items], Dedup | None]],
    ) -> list[JobResult[R]]:
        """Store one job per item; *kept*: for another call, since items are gone."""
        if not kept:
            kept.append(self._checked_many(items, get_settings()))
        return self._store_many(*kept[0])

    @way_out("from_queryset()", "task.afrom_queryset(…)")
    def from_queryset(self, queryset: QuerySet[Any, Any], /, **fields: Any) -> int:
        """
        Store one job per row of a queryset, in the database: INSERT … SELECT.

            send_receipt.from_queryset(Order.objects.unpaid(), order_id="pk")

        All or nothing, in one statement; no row comes to Python. Where job_enqueued
        has receivers, the ids do.

        Args:
            queryset: Whose rows become jobs, in its order.
            fields: For each parameter of the task the name of a field ("pk",
                "customer__email"), an expression, or a constant as Value(…); at most
                50. The arguments are those that delay() would store.

        Returns:
            How many jobs were stored.

        Raises:
            InvalidArgument: The fields do not fit the task, do not exist, or hold
                what the database cannot write as JSON; or the queryset is on another
                database than the jobs.
            PayloadTooLarge: The arguments of a row are too large; nothing is stored.
            QueueFull: The queue has no room for one more; for how many there are, only
                the database knows.
            WrongDatabase: A transaction is open on another alias than the queue's.
        """
        settings = get_settings()
        return self._store_rows(self._placement(settings), settings, queryset, fields)

    afrom_queryset = twin(from_queryset, run=_patiently)

    def s(self, /, *args: Any, **kwargs: Any) -> Signature[R]:
        """
        Return a call that is not made yet: a step of a chain, a group or a chord.

        What stands before it there comes first among its arguments.

            chain(fetch.s(url), parse.s(encoding="utf-8")).delay()

        Args:
            args: Positional arguments, after what stands before.
            kwargs: Keyword arguments. All are checked when the workflow is stored.
        """
        from django_pgqueue.tasks.canvas import Signature

        return Signature(self, args, kwargs)

    def si(self, /, *args: P.args, **kwargs: P.kwargs) -> Signature[R]:
        """Return a call that takes nothing of what stands before it; as s()."""
        from django_pgqueue.tasks.canvas import Signature

        return Signature(self, args, kwargs, is_immutable=True)

    @property
    def task_name(self) -> str:
        """The name of the task."""
        return self._task.name

    def as_step(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        settings: Settings,
        filled: Collection[int | str] = (),
    ) -> tuple[NewStep, str | None]:
        """
        Return a call as the step of a workflow, and why it has no result, if so.

        Args:
            args: Positional arguments; None where it is filled.
            kwargs: Keyword arguments, likewise.
            settings: PGQUEUE.
            filled: Those that are results of other steps, by place or name.

        Raises:
            InvalidArgument, PayloadTooLarge: As delay().
            InvalidOption: It has an option that makes no sense for a step.
        """
        from django_pgqueue.queues.workflows import NewStep
        from django_pgqueue.tasks.plan import check, why_without_result

        lane = self._lane_in(settings)
        check(self._task, self._options, self._rule, lane, filled)
        placement, _, args_text, kwargs_text, _ = self._checked(
            args, kwargs, settings, filled
        )
        step = NewStep(
            name=self._task.name,
            placement=placement,
            args=args_text,
            kwargs=kwargs_text,
            bytes_max=settings.payload_bytes_max,
        )
        return step, why_without_result(self._task, placement.queue, settings)

    def _checked(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        settings: Settings,
        filled: Collection[int | str] = (),
    ) -> tuple[Placement, Settings, str, str, Dedup | None]:
        """Return all that a job's row holds; what is wrong with it is raised."""
        encoded = self._task.encode(args, kwargs, settings.payload_bytes_max)
        if self._task.resolve(self._queue, settings).check_types:
            self._task.check_types(args, kwargs, settings, filled)
        dedup = self._dedup([(args, kwargs)])
        placement = self._placement(settings)
        if (spread := self._options.spread) is not None:
            from django_pgqueue.tasks.keys import offset_of

            offset = offset_of(self._task, spread, args, kwargs)
            placement = replace(placement, offset_microseconds=offset)
        if (lane := self._lane_in(settings)) is not None:
            from django_pgqueue.tasks.lanes import lane_of

            name = lane_of(self._task, lane, args, kwargs)
            placement = replace(placement, lane=name)
        return placement, settings, *encoded, dedup

    def _checked_many(
        self, items: Iterable[Item], settings: Settings
    ) -> tuple[Placement, Settings, list[Items], Dedup | None]:
        """Return all that the rows hold; what is wrong with an item is raised."""
        bytes_max = settings.payload_bytes_max
        encode = self._task.encode_items
        spread, lane = self._options.spread, self._lane_in(settings)
        is_typed = self._task.resolve(self._queue, settings).check_types
        if spread is not None or lane is not None or is_typed:
            from django_pgqueue.tasks.lanes import encode_items

            typed_by = settings if is_typed else None
            encode = functools.partial(encode_items, self._task, spread, lane, typed_by)
        if not isinstance(items, Iterable):
            problem = f"is a {type(items).__qualname__}; it must be an iterable"
            raise InvalidArgument(task=self._task.name, path="items", problem=problem)
        encoded: list[Items] = []
        if self._rule is not None:

            def calls() -> Iterator[store_unique.Call]:
                # The key of each item at once, as below its arguments.
                for place, item in enumerate(items):
                    encoded.extend(encode(place, (item,), bytes_max))
                    by_name = isinstance(item, Mapping)
                    yield ((), dict(item)) if by_name else (tuple(item), {})

            each = calls()
            dedup = self._dedup(each)
            # No argument may be part of the key.
            deque(each, maxlen=0)
            return self._placement(settings), settings, encoded, dedup
        if type(items) is list or type(items) is tuple:
            for start in range(0, len(items), ITEMS_TOGETHER):
                together = items[start : start + ITEMS_TOGETHER]
                encoded += encode(start, together, bytes_max)
        else:
            # Each at once: a generator may yield one dict again and again, and change
            # what is in it between.
            for place, item in enumerate(items):
                encoded += encode(place, (item,), bytes_max)
        return self._placement(settings), settings, encoded, None

    def _dedup(self, calls: Iterable[store_unique.Call]) -> Dedup | None:
        rule = self._rule
        if rule is None:
            return None
        from django_pgqueue.tasks import store_unique

        return store_unique.dedup_of(self._task, rule, self._options.key, calls)

    @_in_span
    def _store(
        self,
        placement: Placement,
        settings: Settings,
        args: str,
        kwargs: str,
        dedup: Dedup | None,
        *,
        anywhere: bool = False,
    ) -> JobResult[R]:
        connection = queue_connection(
            self._task.name, settings.database, anywhere=anywhere
        )
        if placement.queue in settings.queues:
            self._admit(connection, placement.queue, settings, 1)
        if dedup is not None:
            from django_pgqueue.tasks import store_unique

            stored = store_unique.store_one(
                connection, placement, dedup, args=args, kwargs=kwargs
            )
            return self._announced(connection, placement, [stored], settings)[0]
        with connection.cursor() as cursor:
            job_id = self._enqueue(cursor, placement, args=args, kwargs=kwargs)
        _announce(connection, self._task, placement, (job_id,))
        _run_if_immediate((job_id,), settings)
        return JobResult(job_id)

    @_in_span
    def _store_many(
        self,
        placement: Placement,
        settings: Settings,
        items: Sequence[Items],
        dedup: Dedup | None,
        *,
        anywhere: bool = False,
    ) -> list[JobResult[R]]:
        connection = queue_connection(
            self._task.name, settings.database, anywhere=anywhere
        )
        if not items:
            return []
        if placement.queue in settings.queues:
            count = sum(part.jobs for part in items)
            self._admit(connection, placement.queue, settings, count)
        if dedup is not None:
            from django_pgqueue.tasks import store_unique

            stored = store_unique.store_many(connection, placement, dedup, items)
            return self._announced(connection, placement, stored, settings)
        with (
            transaction.atomic(using=connection.alias, savepoint=False),
            connection.cursor() as cursor,
        ):
            ids = enqueue_many(cursor, placement, items)
            _announce(connection, self._task, placement, ids)
        _run_if_immediate(ids, settings)
        return [JobResult(job_id) for job_id in ids]

    @_in_span
    def _store_rows(
        self,
        placement: Placement,
        settings: Settings,
        queryset: QuerySet[Any, Any],
        fields: Mapping[str, Any],
    ) -> int:
        from django_pgqueue.queues.enqueue_rows import enqueue_from_select
        from django_pgqueue.tasks import store_unique
        from django_pgqueue.tasks.from_queryset import check_queryset, select

        task = self._task
        check_queryset(task.name, queryset, settings.database)
        task.bind((), fields)
        selected = select(task.name, queryset, fields, settings.database)
        connection = queue_connection(task.name, settings.database)
        if selected is None:
            return 0
        is_limited = placement.queue in settings.queues and self._admit(
            connection, placement.queue, settings, 1
        )
        arguments, query, params = selected
        key: list[KeyPart] = []
        if (spread := self._options.spread) is not None:
            from django_pgqueue.tasks.keys import key_of

            key = key_of(task, spread, fields, arguments)
        rows: dict[str, Any] = {
            "arguments": arguments,
            "key": key,
            "query": query,
            "params": params,
            "payload_bytes_max": settings.payload_bytes_max,
            "with_ids": bool(signals.job_enqueued.receivers)
            or settings.mode == "immediate",
        }
        if (rule := self._rule) is None:
            if (lane := self._lane_in(settings)) is not None:
                from django_pgqueue.tasks import lanes

                rows["lane"] = lanes.key_of(task, lane, fields, arguments)
            with connection.cursor() as cursor:
                stored = enqueue_from_select(cursor, placement, **rows)
        else:
            dedup = store_unique.dedup_of_fields(
                task, rule, self._options.key, arguments
            )
            stored = store_unique.store_selected(connection, placement, dedup, **rows)
        if stored.largest_bytes > settings.payload_bytes_max:
            raise PayloadTooLarge(
                task=f"{task.name}: a row",
                payload_bytes=stored.largest_bytes,
                payload_bytes_max=settings.payload_bytes_max,
            )
        if stored.keyless and spread is not None:
            raise keyless(task.name, spread, stored.keyless)
        if is_limited and stored.count:
            from django_pgqueue.tasks import depth

            depth.stored(connection, placement.queue, stored.count - 1)
        if stored.count or stored.first_ids:
            _announce(connection, task, placement, stored.ids)
            _run_if_immediate(stored.ids, settings)
        return stored.count

    def _admit(
        self, connection: Any, queue: str, settings: Settings, jobs: int
    ) -> bool:
        """Return whether the queue has a limit; QueueFull: it leaves no room."""
        limit = settings.depth_limit(queue)
        # In immediate mode no job stays.
        if limit is None or settings.mode == "immediate":
            return False
        from django_pgqueue.tasks import depth

        depth.admit(self._task, connection, queue, limit, jobs)
        return True

    def _announced(
        self,
        connection: Any,
        placement: Placement,
        stored: Sequence[UniqueStored],
        settings: Settings,
    ) -> list[JobResult[R]]:
        """Announce the jobs that were stored; return what became of each call."""
        from django_pgqueue.tasks import store_unique

        created = [job_id for job_id, conflict in stored if conflict is None]
        moved = [job_id for job_id, conflict in stored if conflict in MOVED]
        # A claim passes over what an open transaction has locked, and hears of it here.
        is_locked = store_unique.is_open(connection)
        if created:
            _announce(connection, self._task, placement, created)
        elif moved or (is_locked and any(c != "throttled" for _, c in stored)):
            wake_after_commit(connection, placement.queue)
        _run_if_immediate(list(dict.fromkeys([*created, *moved])), settings)
        return [JobResult(job_id, conflict=conflict) for job_id, conflict in stored]

    @property
    def _queue(self) -> str:
        return self._options.queue or self._task.options.queue or QUEUE_DEFAULT

    def _lane_in(self, settings: Settings) -> Lane | None:
        """Return where the jobs wait for one another, also by what the queue says."""
        if self._lane is not None or not settings.fair_by(self._queue):
            return self._lane
        from django_pgqueue.tasks.lanes import lane_in

        return lane_in(self._task, self._options.lane, self._queue, settings)

    def _placement(self, settings: Settings) -> Placement:
        kept = self._kept
        # The same object for as long as the setting does not change.
        if kept is not None and kept[0] is settings:
            return kept[1]
        call, task = self._options, self._task
        queue = self._queue
        resolved = task.resolve(queue, settings)
        rule, lane = self._rule, self._lane_in(settings)
        placement = Placement(
            queue=queue,
            task=task.name,
            headers=_headers(
                task.name,
                call.headers,
                (*task.options.tags, *call.tags),
                settings.payload_bytes_max,
            ),
            priority=resolved.priority if call.priority is None else call.priority,
            max_attempts=call.max_attempts or resolved.retry.max_attempts,
            run_at=call.run_at,
            delay=call.delay if rule is None or rule.delay is None else rule.delay,
            expire_at=call.expire_at,
            expire_in=call.expire_in,
            over_microseconds=call.spread.over_microseconds if call.spread else None,
            has_lanes=lane is not None,
            **(lane.columns if lane else {}),
        )
        if (waits := task.options.accumulate) is not None:
            # In immediate mode nobody would come when the time is over.
            is_immediate = settings.mode == "immediate"
            placement = replace(
                placement,
                accumulate_key=call.accumulate_key or waits.key or NO_KEY,
                accumulate_size=waits.size,
                accumulate_within=timedelta(0) if is_immediate else waits.window,
            )
        if not call.headers:
            # The caller may change what is inside of headers, and means it.
            self._kept = settings, placement
        return placement


class Deferred(Generic[P, R]):
    """What on_commit() returns: it enqueues once a transaction has committed."""

    __slots__ = ("_enqueuer", "_using")

    def __init__(self, enqueuer: Enqueuer[P, R], using: str | None) -> None:
        self._enqueuer = enqueuer
        self._using = using

    def delay(self, /, *args: P.args, **kwargs: P.kwargs) -> None:
        """
        Check the arguments now, and store the job after the commit.

        What is stored is what the arguments are now. Returns nothing: there is no job,
        and no id, before the commit.
        """
        checked = self._enqueuer._checked(args, kwargs, get_settings())
        self._after_commit(self._enqueuer._store, *checked)

    enqueue = delay

    adelay = twin(delay)

    aenqueue = adelay

    def bulk(self, items: Iterable[Item]) -> None:
        """Check the items now, and store one job for each after the commit."""
        checked = self._enqueuer._checked_many(items, get_settings())
        self._after_commit(self._enqueuer._store_many, *checked)

    abulk = twin(bulk)

    def _after_commit(self, store: Callable[..., object], *checked: Any) -> None:
        alias = self._using or open_alias() or get_settings().database
        # anywhere: the caller has said which commit the jobs belong to, and by then
        # it has happened; an outer transaction on a third alias changes nothing.
        transaction.on_commit(
            functools.partial(store, *checked, anywhere=True),
            using=alias,
        )


def _check_rule(task: DeclaredTask, options: CallOptions) -> None:
    """Raise InvalidOption where what a call says about others cannot be."""
    rule, lane = options.rule_for(task.options), options.lane_for(task.options)
    if lane is not None:
        accumulates = task.options.accumulate is not None
        problem = problem_of_lane(lane, has_rule=bool(rule), accumulates=accumulates)
        if problem is not None:
            raise InvalidOption(f"{problem}.")
        with raised_as(InvalidOption):
            task.parameters.check_takes(lane.by, lane.option)
    if rule is None:
        if options.key is not None:
            raise InvalidOption(
                f"key needs unique, debounce or throttle, and {task.name} has none: "
                f"say it with the key; or declare the task with accumulate=…."
            )
        return
    if task.options.accumulate is not None:
        raise InvalidOption(
            f"{task.name} is declared with accumulate=…, of which each call is a job; "
            f"unique, debounce and throttle leave some out. Say one of the two."
        )
    if rule.delay is not None and options.spread is not None:
        raise InvalidOption(
            "spread() and debounce contradict each other: each says when the job runs. "
            "Leave one out, or say unique=Unique() in place of debounce."
        )
    if rule.delay is not None and (options.run_at or options.delay) is not None:
        raise InvalidOption(
            "run_after and debounce contradict each other: each says when the job "
            "runs. Leave run_after out, or say unique=Unique(conflict='reschedule')."
        )
    with raised_as(InvalidOption):
        rule.check_names(task.parameters)


def _headers(
    task_name: str, headers: Mapping[str, Any], tags: Sequence[str], bytes_max: int
) -> str:
    if not headers and not tags:
        return "{}"
    values = dict(headers)
    if tags:
        values["tags"] = list(check_tags(tags))
    text = payload.encode_at(task_name, "headers", values)
    size = len(text.encode())
    if size > bytes_max:
        problem = (
            f"take {size:,} bytes as JSON; the limit is {bytes_max:,} "
            f"(PGQUEUE['PAYLOAD_BYTES_MAX'])"
        )
        raise InvalidArgument(task=task_name, path="headers", problem=problem)
    return text


def _run_if_immediate(ids: Sequence[int], settings: Settings) -> None:
    if settings.mode == "immediate":
        from django_pgqueue.tasks.inline import run_enqueued

        run_enqueued(ids)


def _announce(
    connection: Any, task: DeclaredTask, placement: Placement, ids: Sequence[int]
) -> None:
    if placement.lane is not None or placement.has_lanes:
        from django_pgqueue.tasks import lanes

        lanes.announce(connection, placement)
    else:
        wake_after_commit(connection, placement.queue)
    if signals.job_enqueued.receivers:
        for job_id in ids:
            signals.job_enqueued.send(
                sender=task,
                job_id=job_id,
                task=placement.task,
                queue=placement.queue,
            )
