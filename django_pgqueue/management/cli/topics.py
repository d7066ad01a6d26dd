"""pgqueue topics: who listens to what, and how much is there."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

from django_pgqueue.conf import get_settings
from django_pgqueue.log import groups, subscriptions
from django_pgqueue.log.first_id import first_id
from django_pgqueue.log.generations import spans
from django_pgqueue.log.groups import GroupRow
from django_pgqueue.log.lag import Holder, holders, lag
from django_pgqueue.log.overview import COUNTED_MESSAGES_MAX, count_since
from django_pgqueue.log.subscriptions import SubscriptionRow
from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Column, Output
from django_pgqueue.management.cli.places import topic_name
from django_pgqueue.models import Topic
from django_pgqueue.operators.human import age, count, duration, in_utc, shown, size
from django_pgqueue.operators.paging import in_order
from django_pgqueue.operators.states import behind_of, subscription_state
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.schedules.store import database_now
from django_pgqueue.tasks import database
from django_pgqueue.worker.queue_plan import QueuePlan
from django_pgqueue.worker.serving import living_plans

HELP = "List topics: messages, retention, and who listens."

LATELY = timedelta(days=1)

LIST = (
    Column("topic", may_cut=True),
    Column("partitions", right=True),
    Column("kept"),
    Column("size", right=True),
    Column("in 24 h", right=True),
    Column("subscriptions", right=True),
    Column("groups", right=True),
    Column("held back", right=True),
)
LISTENERS = (
    Column("listener", may_cut=True),
    Column("state"),
    Column("lag", right=True),
    Column("queue", may_cut=True),
    Column("task", may_cut=True),
)


def add_arguments(parser: Any) -> None:
    """Declare which topic."""
    parser.add_argument(
        "topic",
        nargs="?",
        type=topic_name,
        metavar="TOPIC",
        help="Who listens to this one.",
    )


def run(options: dict[str, Any], out: Output) -> int:
    """List topics, or the listeners of one."""
    name = options["topic"]
    topics = list(Topic.objects.using(get_settings().database).order_by("name"))
    rows = [row for row in topics if name in (None, row.name)]
    with in_order(), database.cursor() as cursor:
        told = [_facts(row) for row in rows]
        _add_counts(cursor, rows, told)
        _add_listeners(cursor, rows, told, with_lag=name is not None)
    if out.as_json:
        out.json({"topics": told})
    elif not rows and name is None:
        out.line("There is no topic.")
    elif not rows:
        out.missing("topic", name, [row.name for row in topics], None)
    elif name is None:
        out.table(LIST, [_row(each) for each in told])
    else:
        _print(told[0], out)
    return EXIT_DONE if rows or name is None else EXIT_NOTHING


def _facts(row: Any) -> dict[str, Any]:
    retention = get_settings().retention.log
    kept = retention if row.retain is None else row.retain
    return {
        "topic": row.name,
        "partitions": row.partitions,
        "first_partition": row.first_partition,
        "kept_seconds": None if kept is None else kept.total_seconds(),
        "kept_by": "RETENTION" if row.retain is None else "topic",
        "kept_bytes": row.retain_bytes,
        "wait_for_ingest_seconds": None
        if row.wait_for_ingest is None
        else row.wait_for_ingest.total_seconds(),
        "bytes": row.log_bytes,
        "measured_at": row.log_bytes_at,
        "schema": row.schema,
        "removed_to": row.removed_to,
        "last_declared_at": row.last_declared_at,
    }


def _add_counts(cursor: Cursor, rows: list[Any], told: list[dict[str, Any]]) -> None:
    held: dict[int, Holder] = {}
    for holder in holders(cursor):
        held.setdefault(holder.topic_id, holder)
    counts: dict[int, int] = {}
    if rows:
        since = in_utc(database_now(cursor)).astimezone(UTC) - LATELY
        ids = [row.pk for row in rows]
        counts = count_since(cursor, ids, first_id(cursor, since), since)
    for row, each in zip(rows, told, strict=True):
        count, by = counts.get(row.pk, 0), held.get(row.pk)
        each["messages_24h"] = count
        each["is_partial"] = count >= COUNTED_MESSAGES_MAX
        each["held_back_seconds"] = None if by is None else by.seconds
        each["held_back_by_pid"] = None if by is None else by.pid


def _add_listeners(
    cursor: Cursor, rows: list[Any], told: list[dict[str, Any]], *, with_lag: bool
) -> None:
    wanting = subscriptions.find_all(cursor)
    reading = groups.find_all(cursor)
    plans = living_plans(cursor) if with_lag else None
    for row, each in zip(rows, told, strict=True):
        each["subscriptions"] = [
            _subscription(one) for one in wanting if one.topic in (None, row.name)
        ]
        each["groups"] = [
            _group(cursor, one, plans) for one in reading if one.topic_id == row.pk
        ]


def _subscription(row: SubscriptionRow) -> dict[str, Any]:
    return {
        "pattern": row.pattern,
        "state": subscription_state(row),
        "queue": row.queue,
        "task": row.task,
        "source": row.source,
        "last_declared_at": row.last_declared_at,
        "disabled_at": row.disabled_at,
        "disabled_by": row.disabled_by,
        "disabled_reason": row.disabled_reason,
        "backfill_position": row.backfill_position,
        "backlog": row.backlog,
        "backlog_max": row.backlog_max,
        "backlog_on_full": row.backlog_on_full,
        "full_at": row.full_at,
        "held_at": row.held_at,
    }


def _group(
    cursor: Cursor, row: GroupRow, plans: set[QueuePlan] | None
) -> dict[str, Any]:
    """Tell of a group; with what living workers serve, its state and lag, too."""
    told: dict[str, Any] = {"group": row.name, "queue": row.queue, "task": row.task}
    if plans is not None:
        behind = behind_of(row, lag(cursor, row.id), plans)
        told["state"], told["lag"] = behind.state, behind.shown
    return told


def _row(told: dict[str, Any]) -> list[object]:
    return [
        told["topic"],
        told["partitions"],
        _kept(told),
        _size(told),
        _count(told),
        len(told["subscriptions"]),
        len(told["groups"]),
        _held(told),
    ]


def _print(told: dict[str, Any], out: Output) -> None:
    out.line(f"Topic {shown(told['topic'])}")
    held = _held(told)
    out.facts(
        {
            "partitions": _partitions(told),
            "kept": f"{_kept(told)}, as "
            + ("the topic says" if told["kept_by"] == "topic" else "RETENTION says"),
            "size": _size(told) or None,
            "schema": told["schema"],
            "in 24 h": f"{_count(told)} message{'' if _count(told) == '1' else 's'}",
            "removed up to": told["removed_to"] or None,
            "held back": f"{held}, by pid {told['held_back_by_pid']}" if held else None,
        }
    )
    lines: list[list[object]] = [
        [each["pattern"], each["state"], "", each["queue"], each["task"]]
        for each in told["subscriptions"]
    ]
    lines += [
        [
            f"group {each['group']}",
            each["state"],
            each["lag"],
            each["queue"],
            each["task"],
        ]
        for each in told["groups"]
    ]
    out.line()
    if lines:
        out.table(LISTENERS, lines)
    else:
        out.line("Nobody listens to it.")


def _partitions(told: dict[str, Any]) -> str:
    first, count = told["first_partition"], told["partitions"]
    return f"{count}, {spans(range(first, first + count))}" if first else str(count)


def _kept(told: dict[str, Any]) -> str:
    seconds = told["kept_seconds"]
    return "for ever" if seconds is None else duration(seconds)


def _size(told: dict[str, Any]) -> str:
    there_is, most = told["bytes"], told["kept_bytes"]
    if there_is is None:
        return "" if most is None else f"of {size(most)}"
    return size(there_is) + ("" if most is None else f" of {size(most)}")


def _count(told: dict[str, Any]) -> str:
    return count(told["messages_24h"], is_more=told["is_partial"])


def _held(told: dict[str, Any]) -> str:
    if told["held_back_by_pid"] is None and told["held_back_seconds"] is None:
        return ""
    seconds = told["held_back_seconds"]
    return age(seconds) or "?"
