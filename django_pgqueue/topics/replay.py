"""
Replay: have a range of a topic's log once more, for somebody who exists.

    topic("clicks").replay(to="subscription:mail/clicks.*", since="2 days ago")

plan() fixes and counts a range, begin() stores it as a bulk act, and step() does the
next chunk of it for the leader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_pgqueue.bounds import PER_SECOND_MAX
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import TopicError, check_whole
from django_pgqueue.log import groups, receivers, replay
from django_pgqueue.log.replay import CHUNK_JOBS, Plan, Range, counted, look, place
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.limited import limited
from django_pgqueue.postgres.limits import Plans, limit
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.queues.bulk_acts import Chunk, Extent
from django_pgqueue.queues.fair import lane_hints
from django_pgqueue.queues.pull import HINT as PULL_HINT
from django_pgqueue.tasks import database, operate
from django_pgqueue.tasks.task import Task
from django_pgqueue.topics.subscribe import checked_where

VERB = "replay"

# How long a statement of a chunk may take.
CHUNK_SECONDS = 600

Place = int | str | datetime | timedelta


class Progress(NamedTuple):
    """
    How far a replay is.

    Attributes:
        state: "waiting", "running", "done", "stopped" or "failed".
        done: How many messages have a job by now.
        counted: How many are included, as far as they were counted.
        position: Everything up to this id is done.
        top: The id at which it ends.
        error: What went wrong; "": nothing.
    """

    state: str
    done: int
    counted: int
    position: int
    top: int
    error: str


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay that was asked for, by the number of its bulk act."""

    id: int

    def progress(self) -> Progress:
        """
        Return how far it is.

        Raises:
            TopicError: Its act has ended a month ago, and is deleted.
        """
        from django_pgqueue.models import BulkAct

        acts = BulkAct.objects.using(get_settings().database).filter(pk=self.id)
        row = acts.values_list(*Progress._fields).first()
        if row is None:
            raise TopicError(f"There is no bulk act {self.id}: a month after its end.")
        return Progress(*row)

    def stop(self, *, by: str = "") -> bool:
        """End it between two chunks; what is done stays done. False: it has ended."""
        return operate.stop_act(self.id, by=by)


def plan(
    topic: str,
    to: Any,
    *,
    since: Place,
    until: Place | None = None,
    where: Mapping[str, Any] | None = None,
) -> Plan:
    """
    Return what a replay would do, with its messages counted; nothing is changed.

    Args:
        topic: Whose log.
        to: Who gets the messages; see Topic.replay().
        since: As there.
        until: As there.
        where: As there.

    Raises:
        MessagesLost, TopicError: As there.
    """
    first = place("since", since)
    last = None if until is None else place("until", until)
    text = checked_where(where)
    with database.cursor() as cursor:
        row = groups.topic_of(cursor, topic, makes=False)
        receiver = _receiver(cursor, topic, to)
        meant = look(cursor, topic, row, receiver, since=first, until=last, where=text)
    with (
        limited(get_settings().database, seconds=CHUNK_SECONDS, plans=Plans.IN_ORDER),
        database.cursor() as cursor,
    ):
        return counted(cursor, meant)


def begin(
    plan: Plan, *, by: str = "", reason: str = "", per_second: int | None = None
) -> Replay:
    """
    Have a replay done by whoever leads the workers.

    Args:
        plan: As plan() returned it.
        by: Who asks; at most 150 characters.
        reason: Why; at most 2,000 characters.
        per_second: So many messages a second at most; None: as fast as it goes.

    Raises:
        InvalidOption: *by* or *reason* is too long, or no text that can be stored.
        TopicError: *per_second* is out of its range.
    """
    check_rate(per_second)
    extent = Extent(
        plan.messages, plan.is_more, plan.top, plan.at, position=plan.position
    )
    act = operate.begin_act(
        VERB, plan.said, extent, by=by, reason=reason, per_second=per_second
    )
    return Replay(act)


def step(connection: Any, cursor: Cursor, act: Any) -> Chunk:
    """
    Make the jobs of the next messages of an act; the caller stores how far it is.

    Args:
        connection: Django's, with the transaction of the chunk.
        cursor: Of it.
        act: The locked row of the act.

    Raises:
        TopicError: Nobody is there to get them any more.
    """
    said = act.filters
    topic = groups.topic_of(cursor, said["topic"], makes=False)
    into, of = receivers.find(cursor, said["topic"], said["into"])
    meant = Range(
        **of,
        topic=said["topic"],
        since=_moment(said.get("since")),
        until=_moment(said.get("until")),
        where=said.get("where"),
    )
    limit(cursor, seconds=CHUNK_SECONDS, plans=Plans.IN_ORDER)
    done = replay.replay(
        cursor,
        meant,
        topic,
        act=act.pk,
        position=act.position,
        top=act.top,
        jobs=min(act.per_second or CHUNK_JOBS, CHUNK_JOBS),
    )
    if done is None:
        raise TopicError(f"{into} is not there any more, or it is disabled.")
    if done.jobs > done.in_lanes:
        hint = PULL_HINT if meant.kind == "queue" else ""
        wake_after_commit(connection, f"{hint}{meant.queue}")
    for hint in lane_hints(meant.queue, done.in_lanes, done.in_turn):
        wake_after_commit(connection, hint)
    error = ""
    if topic.removed_to > act.position:
        error = (
            f"Retention has removed messages up to the id {topic.removed_to:,} before "
            f"they were replayed."
        )
    return Chunk(done.position, done.jobs, error=error)


def check_rate(per_second: object) -> None:
    """Raise TopicError unless so many messages a second can be asked for."""
    if per_second is not None:
        more = ", of messages a second"
        check_whole("rate={}", per_second, PER_SECOND_MAX, TopicError, more=more)


def _receiver(cursor: Cursor, topic: str, to: object) -> tuple[str, dict[str, Any]]:
    """Return who gets the messages; a task is who it subscribes, or reads, for."""
    if not isinstance(to, Task):
        return receivers.find(cursor, topic, to)
    names = {to.name, *to.aliases}
    return receivers.only(cursor, topic, to.name, lambda row: row.task in names)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
