"""
Frozen: a clock that stands still for the jobs and for Django, and is moved by hand.

The server's clock cannot be stopped. So each statement that goes through Django's
connections is told the moment where it would ask for it: the claim, the settle, the
enqueue and Django's Now() alike. Columns that the server itself fills in (enqueued_at
and visible_at of a new job) are set to the moment right after the insert.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

from django.conf import settings
from django.db import connections
from django.db.backends.signals import connection_created
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Greatest
from django.utils import timezone

from django_pgqueue import signals
from django_pgqueue.conf import get_settings
from django_pgqueue.models import Job
from django_pgqueue.options.durations import Duration, as_timedelta
from django_pgqueue.postgres.clock import server_now, with_moment
from django_pgqueue.tasks import inline
from django_pgqueue.testing.access import explained, latest_id

# A job without a time becomes visible when it is enqueued; the two columns are filled
# in within microseconds.
AT_ONCE = timedelta(seconds=1)


class Clock:
    """
    The time inside freeze().

    It stands still until advance() or move_to() is called.
    """

    def __init__(self, moment: datetime) -> None:
        self._moment = moment
        self._newest = 0

    @property
    def now(self) -> datetime:
        """Return the moment as timezone.now() does, aware where USE_TZ is on."""
        if settings.USE_TZ:
            return self._moment
        return timezone.make_naive(self._moment)

    def advance(self, duration: Duration) -> datetime:
        """
        Let time pass at once; return what it is now.

        Args:
            duration: Seconds, a timedelta, or text such as "90s", "5m", "24h", "7d".

        Raises:
            ValueError: It is no duration, or negative.
        """
        step = as_timedelta(duration, name="advance(…)")
        return self._move(self._moment + step)

    def move_to(self, moment: datetime | str) -> datetime:
        """
        Make it *moment*, earlier or later; return what it is now.

        Args:
            moment: A datetime, or its ISO text; a naive one is in the current zone.

        Raises:
            ValueError: The text is no moment.
        """
        return self._move(as_moment(moment))

    def _move(self, moment: datetime) -> datetime:
        # What was enqueued before the move was enqueued at the earlier moment.
        self._pin_new_rows()
        self._moment = moment
        return self.now

    def _pin_new_rows(self) -> None:
        """Give jobs that were just enqueued the moment instead of the server's time."""
        new = Job.objects.using(get_settings().database).filter(pk__gt=self._newest)
        ids = list(new.values_list("pk", flat=True))
        if not ids:
            return
        self._newest = max(ids)
        moment = Value(self._moment)
        is_at_once = Q(
            run_after=None,
            visible_at__gte=F("enqueued_at") - AT_ONCE,
            visible_at__lte=F("enqueued_at") + AT_ONCE,
        )
        new.model.objects.using(new.db).filter(pk__in=ids, deliveries=0).update(
            enqueued_at=moment,
            visible_at=Case(
                When(is_at_once, then=moment),
                When(
                    run_after__isnull=False,
                    visible_at__isnull=False,
                    then=Greatest("run_after", moment),
                ),
                default=F("visible_at"),
            ),
            # Of a lane, it says from when on the job may be let through.
            lane_due_at=Case(
                When(lane_due_at__isnull=False, then=Greatest("run_after", moment)),
            ),
        )

    def __repr__(self) -> str:
        return f"<Clock {self._moment.isoformat()}>"


@contextmanager
def freeze(at: datetime | str | None = None) -> Iterator[Clock]:
    """
    Stop the clock for the jobs and for Django; move it by hand.

        with freeze() as clock:
            remind.using(run_after="1h").delay(7)
            clock.advance("1h")
            drain()

    Still stand: what SQL through Django's connections asks for (now() and its like,
    Django's Now()), the times of jobs, and django.utils.timezone. Go on: the clocks of
    Python's own modules, the server's in defaults and triggers of your tables, and
    every other process.

    Args:
        at: The moment to begin with, a datetime or its ISO text; by default the
            server's time.

    Yields:
        The clock, with now, advance() and move_to().

    Raises:
        RuntimeError: The clock is frozen already.
    """
    if _clocks:
        raise RuntimeError(
            "The clock is frozen already, by a freeze() around this one: move that "
            "one with move_to() or advance()."
        )
    with explained("freeze()"):
        alias = get_settings().database
        with connections[alias].cursor() as cursor:
            moment = server_now(cursor) if at is None else as_moment(at)
        clock = Clock(moment)
        clock._newest = latest_id(alias)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(timezone, "datetime", FrozenDatetime))
        stack.enter_context(_frozen_connections(clock))
        stack.enter_context(_pinned(clock))
        _clocks.append(clock)
        stack.callback(_clocks.remove, clock)
        yield clock


def pin_new_rows() -> None:
    """If the clock is frozen, give jobs that were just enqueued its moment."""
    for clock in _clocks:
        clock._pin_new_rows()


def as_moment(value: datetime | str) -> datetime:
    """Return *value* as an aware datetime in UTC; raise ValueError if it is none."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if timezone.is_naive(moment):
        moment = timezone.make_aware(moment)
    return moment.astimezone(UTC)


_clocks: list[Clock] = []


class _AsDatetime(type):
    """Whatever is a datetime is an instance of the frozen one, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime)


class FrozenDatetime(datetime, metaclass=_AsDatetime):
    """Stands in for datetime in django.utils.timezone: its now() is the clock's."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        """Return the moment in the zone *tz*; None: naive, in local time."""
        moment = _clocks[-1]._moment
        return moment.astimezone(tz) if tz else timezone.make_naive(moment)


@contextmanager
def _frozen_connections(clock: Clock) -> Iterator[None]:
    """Tell the moment in all SQL of Django's connections, later ones included."""
    reached: list[Any] = []

    def tell(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        if not isinstance(sql, str):
            sql = sql.as_string(context["connection"].connection)
        return execute(with_moment(sql, clock._moment), params, many, context)

    def reach(connection: Any, **_: Any) -> None:
        if connection.vendor == "postgresql" and connection not in reached:
            connection.execute_wrappers.append(tell)
            reached.append(connection)

    for connection in connections.all():
        reach(connection)
    connection_created.connect(reach)
    try:
        yield
    finally:
        connection_created.disconnect(reach)
        for connection in reached:
            connection.execute_wrappers.remove(tell)


@contextmanager
def _pinned(clock: Clock) -> Iterator[None]:
    """Pin rows right after the enqueue, and before a job is claimed."""

    def pin(job_id: int, **_: Any) -> None:
        if job_id > clock._newest:
            clock._pin_new_rows()

    signals.job_enqueued.connect(pin)
    inline.before_claim.insert(0, clock._pin_new_rows)
    try:
        yield
    finally:
        inline.before_claim.remove(clock._pin_new_rows)
        signals.job_enqueued.disconnect(pin)
