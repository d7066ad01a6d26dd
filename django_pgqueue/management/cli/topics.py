"""pgqueue topics, repartition and replay: who listens to what, and how much."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import MessagesLost
from django_pgqueue.log import groups, subscriptions
from django_pgqueue.log.browse import COUNTED_MESSAGES_MAX, count_since
from django_pgqueue.log.generations import former_numbers, spans
from django_pgqueue.log.groups import GroupRow
from django_pgqueue.log.lag import Holder, holders, lag, lags
from django_pgqueue.log.names import check_partitions
from django_pgqueue.log.replay import Plan
from django_pgqueue.log.start import first_id
from django_pgqueue.log.subscriptions import SubscriptionRow
from django_pgqueue.management.cli.acting import add_pace, operator_name
from django_pgqueue.management.cli.output import (
    EXIT_DONE,
    EXIT_NOTHING,
    Output,
    Subcommand,
)
from django_pgqueue.management.cli.words import (
    add_reason,
    json_object,
    place,
    reading,
    resolved,
    topic_name,
)
from django_pgqueue.models import Topic
from django_pgqueue.operators import human
from django_pgqueue.operators.human import age, count, duration, in_utc, shown, size
from django_pgqueue.operators.paging import in_order
from django_pgqueue.operators.states import Behind, behind_of, subscription_state
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.schedules.store import database_now
from django_pgqueue.tasks import database
from django_pgqueue.topics import operate_groups as operate
from django_pgqueue.topics import replay as replays
from django_pgqueue.worker.queue_plan import QueuePlan
from django_pgqueue.worker.serving import living_plans

# Topics -------------------------------------------------------------------------------


LATELY = timedelta(days=1)

# Columns of a subscription that JSON has.
OF_SUBSCRIPTION = (
    *("pattern", "queue", "task", "source", "last_declared_at", "disabled_at"),
    *("disabled_by", "disabled_reason", "backfill_position", "backlog"),
    *("backlog_max", "backlog_on_full", "full_at", "held_at"),
)


def _add_topics(parser: Any) -> None:
    """Declare which topic."""
    parser.add_argument(
        "topic",
        nargs="?",
        type=topic_name,
        metavar="TOPIC",
        help="Who listens to this one.",
    )


def _topics(options: dict[str, Any], out: Output) -> int:
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
        out.table([_topic_row(each) for each in told])
    else:
        _print_topic(told[0], out)
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
    told = {name: getattr(row, name) for name in OF_SUBSCRIPTION}
    return {**told, "state": subscription_state(row)}


def _group(
    cursor: Cursor, row: GroupRow, plans: set[QueuePlan] | None
) -> dict[str, Any]:
    """Tell of a group; with what living workers serve, its state and lag, too."""
    told: dict[str, Any] = {"group": row.name, "queue": row.queue, "task": row.task}
    if plans is not None:
        behind = behind_of(row, lag(cursor, row.id), plans)
        told["state"], told["lag"] = behind.state, behind.shown
    return told


def _topic_row(told: dict[str, Any]) -> dict[str, object]:
    return {
        "topic": told["topic"],
        "partitions": told["partitions"],
        "kept": _kept(told),
        "size": _size(told),
        "in 24 h": _count(told),
        "subscriptions": len(told["subscriptions"]),
        "groups": len(told["groups"]),
        "held back": _held_back(told),
    }


def _print_topic(told: dict[str, Any], out: Output) -> None:
    out.line(f"Topic {shown(told['topic'])}")
    held = _held_back(told)
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
    listeners = [*told["subscriptions"], *told["groups"]]
    lines = [
        {
            "listener": each.get("pattern") or f"group {each['group']}",
            "state": each["state"],
            "lag": each.get("lag"),
            "queue": each["queue"],
            "task": each["task"],
        }
        for each in listeners
    ]
    out.line()
    if lines:
        out.table(lines)
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


def _held_back(told: dict[str, Any]) -> str:
    if told["held_back_by_pid"] is None and told["held_back_seconds"] is None:
        return ""
    seconds = told["held_back_seconds"]
    return age(seconds) or "?"


# Repartition --------------------------------------------------------------------------


def _add_repartition(parser: Any) -> None:
    """Declare which topic, and how many."""
    parser.add_argument("topic", type=topic_name, metavar="TOPIC")
    parser.add_argument("partitions", type=_partition_count, metavar="PARTITIONS")
    parser.add_argument(
        "--yes", "-y", action="store_true", help="Do not ask before doing it."
    )


def _repartition(options: dict[str, Any], out: Output) -> int:
    """Tell who reads the topic, ask, and change the count."""
    name, partitions = options["topic"], options["partitions"]
    topics = Topic.objects.using(get_settings().database)
    row = topics.filter(name=name).first()
    if row is None:
        names = list(topics.values_list("name", flat=True))
        return out.missing("topic", name, names, {"topic": None})
    if row.partitions != partitions and not options["yes"]:
        _preview(row, partitions, out)
        what = f"{name} would have {partitions} instead of {row.partitions} partitions"
        if not out.confirms(what, f"{what}. Repartition {name}?"):
            out.note("Nothing was done.")
            return EXIT_NOTHING
    is_done = operate.repartition(name, partitions)
    row.refresh_from_db()
    with database.cursor() as cursor:
        former = former_numbers(cursor, row.pk)
    numbers = range(row.first_partition, row.first_partition + row.partitions)
    if not out.as_json and is_done and former:
        out.note(
            f"Partitions {spans(former)} are read to their end beside them. Say the "
            f"new count where the topic is declared, too: topic({name!r}, "
            f"partitions={partitions})"
        )
    return out.answer(
        {
            "topic": name,
            "partitions": row.partitions,
            "first_partition": row.first_partition,
            "repartitioned": is_done,
        },
        is_done,
        f"Topic {name} has {partitions} partitions: {spans(numbers)}.",
        f"Topic {name} has {partitions} partitions already.",
    )


def _preview(row: Any, partitions: int, out: Output) -> None:
    """Print who reads the topic, and how far they are behind."""
    with in_order(), database.cursor() as cursor:
        reading = [each for each in groups.find_all(cursor) if each.topic_id == row.pk]
        found = lags(cursor, [each.id for each in reading])
        plans = living_plans(cursor)
    if reading and not out.as_json:
        lines = [(each, behind_of(each, found[each.id], plans)) for each in reading]
        out.table([_line(each, behind) for each, behind in lines])


def _line(row: groups.GroupRow, behind: Behind) -> dict[str, object]:
    return {
        "group": shown(row.name),
        "state": behind.state,
        "lag": behind.shown,
        "partitions": behind.partitions,
        "halted": len(behind.halted) or "",
    }


@reading
def _partition_count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() else None
    return check_partitions(number, repr(text))


# Replay -------------------------------------------------------------------------------


def _add_replay(parser: Any) -> None:
    """Declare which messages, and for whom."""
    parser.add_argument("topic", type=topic_name, metavar="TOPIC")
    parser.add_argument(
        "--to",
        required=True,
        metavar="RECEIVER",
        help="Who gets them: subscription:QUEUE/PATTERN, group:NAME or queue:NAME.",
    )
    parser.add_argument(
        "--since",
        type=place,
        required=True,
        metavar="PLACE",
        help="The first one: earliest, its id, a time, or how long ago.",
    )
    parser.add_argument(
        "--until",
        type=place,
        metavar="PLACE",
        help="The last one by its id, or a time before which it was published.",
    )
    parser.add_argument(
        "--where",
        type=json_object,
        metavar="JSON",
        help="Only those whose payload contains this object.",
    )
    add_pace(parser)
    add_reason(parser, "replay")
    parser.add_argument(
        "--dry-run", action="store_true", help="Count them, and do nothing."
    )
    parser.add_argument(
        "--yes", "-y", action="store_true", help="Do not ask before doing it."
    )


def _run_replay(options: dict[str, Any], out: Output) -> int:
    """Count what is meant, and have it done if that is confirmed."""
    try:
        return _replay(options, out)
    except MessagesLost as error:
        if out.as_json:
            out.json({"replay": None, "lost": str(error)})
        out.note(f"Nothing was done. {shown(error)}")
        return EXIT_NOTHING


def _replay(options: dict[str, Any], out: Output) -> int:
    replays.check_rate(options["per_second"])
    with database.cursor() as cursor:
        since = resolved(cursor, options["since"])
        until = options["until"] and resolved(cursor, options["until"])
    plan = replays.plan(
        options["topic"], options["to"], since=since, until=until,
        where=options["where"],
    )  # fmt: skip
    count = f"{human.count(plan.messages, is_more=plan.is_more)} message"
    count += "" if count == "1 message" else "s"
    what = f"{count} would be replayed into {shown(plan.into)}"
    told = {
        "topic": options["topic"],
        "into": plan.into,
        "messages": plan.messages,
        "is_partial": plan.is_more,
        "first": plan.first,
        "last": plan.last,
    }
    if options["dry_run"] or not (plan.messages or plan.is_more):
        if out.as_json:
            out.json({**told, "replay": None})
        else:
            out.line(f"{what}{_when(plan)}.")
        return EXIT_DONE if plan.messages else EXIT_NOTHING
    if not options["yes"]:
        question = f"{what}{_when(plan)}. Replay them?"
        if not out.confirms(what, question):
            out.note("Nothing was done.")
            return EXIT_NOTHING
    asked = replays.begin(
        plan,
        by=operator_name(),
        reason=options["reason"],
        per_second=options["per_second"],
    )
    return out.answer(
        {**told, "replay": asked.id},
        True,
        f"Replay {asked.id} is asked for: {count} into {shown(plan.into)}. The worker "
        f"that leads does it; see how far it is: manage.py pgqueue acts show "
        f"{asked.id}",
        "",
    )


def _when(plan: Plan) -> str:
    if plan.first is None or plan.last is None:
        return ""
    first, last = (human.in_utc(each) for each in (plan.first, plan.last))
    return f", published from {first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC"


TOPICS = Subcommand(
    "List topics: messages, retention, and who listens.",
    _add_topics,
    _topics,
)

REPARTITION = Subcommand(
    "Give a topic another count of partitions, while it is published to and read.",
    _add_repartition,
    _repartition,
)

REPLAY = Subcommand(
    "Have messages of a log once more, as jobs of a subscription or a group.",
    _add_replay,
    _run_replay,
)
