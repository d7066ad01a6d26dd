"""pgqueue replay: messages of a log once more, for a subscription or a group."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from django_pgqueue.exceptions import MessagesLost, TopicError
from django_pgqueue.log.replay_plan import Plan
from django_pgqueue.management.cli.acting import add_pace, operator_name
from django_pgqueue.management.cli.output import (
    EXIT_DONE,
    EXIT_NOTHING,
    EXIT_USAGE,
    Output,
)
from django_pgqueue.management.cli.places import place, resolved, topic_name
from django_pgqueue.management.cli.words import add_reason, job_id, json_object
from django_pgqueue.operators import human
from django_pgqueue.operators.human import shown
from django_pgqueue.tasks import database
from django_pgqueue.topics import replay
from django_pgqueue.topics.replay import Replay

HELP = "Have messages of a log once more, as jobs of a subscription or a group."


def add_arguments(parser: Any) -> None:
    """Declare of which messages, and for whom; or which replay is meant."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "topic", nargs="?", type=topic_name, metavar="TOPIC", help="Whose messages."
    )
    which.add_argument(
        "--show", type=job_id, metavar="ID", help="Say how far this replay is."
    )
    which.add_argument(
        "--stop", type=job_id, metavar="ID", help="End this replay; what is done stays."
    )
    parser.add_argument(
        "--to",
        metavar="RECEIVER",
        help="Who gets them: subscription:QUEUE/PATTERN, group:NAME or queue:NAME.",
    )
    parser.add_argument(
        "--since",
        type=place,
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


def run(options: dict[str, Any], out: Output) -> int:
    """Count what is meant, and have it done if that is confirmed."""
    try:
        if options["show"] is not None:
            return _show(Replay(options["show"]), out)
        if options["stop"] is not None:
            return _stop(Replay(options["stop"]), out)
        return _replay(options, out)
    except MessagesLost as error:
        if out.as_json:
            out.json({"replay": None, "lost": str(error)})
        out.note(f"Nothing was done. {shown(error)}")
        return EXIT_NOTHING
    except TopicError as error:
        raise CommandError(str(error), returncode=EXIT_USAGE) from error


def _replay(options: dict[str, Any], out: Output) -> int:
    if options["to"] is None or options["since"] is None:
        raise CommandError(
            "Say who gets them, with --to, and from where on, with --since.",
            returncode=EXIT_USAGE,
        )
    replay.check_rate(options["per_second"])
    with database.cursor() as cursor:
        since = resolved(cursor, options["since"])
        until = options["until"] and resolved(cursor, options["until"])
    plan = replay.plan(
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
    asked = replay.begin(
        plan,
        by=operator_name(),
        reason=options["reason"],
        per_second=options["per_second"],
    )
    return out.answer(
        {**told, "replay": asked.id},
        True,
        f"Replay {asked.id} is asked for: {count} into {shown(plan.into)}. The worker "
        f"that leads does it; see how far it is: manage.py pgqueue replay --show "
        f"{asked.id}",
        "",
    )


def _when(plan: Plan) -> str:
    if plan.first is None or plan.last is None:
        return ""
    first, last = (human.in_utc(each) for each in (plan.first, plan.last))
    return f", published from {first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC"


def _show(asked: Replay, out: Output) -> int:
    told = asked.progress()
    if out.as_json:
        out.json({"replay": asked.id, **told._asdict()})
        return EXIT_DONE
    out.line(
        f"Replay {asked.id} is {told.state}: {told.done:,} of {told.counted:,} "
        f"messages, up to the id {told.position:,} of {told.top:,}."
    )
    if told.error:
        out.line(shown(told.error))
    return EXIT_DONE


def _stop(asked: Replay, out: Output) -> int:
    is_done = asked.stop(by=operator_name())
    return out.answer(
        {"replay": asked.id, "stopped": is_done},
        is_done,
        f"Replay {asked.id} is stopped; what is done stays done.",
        f"Replay {asked.id} had ended, or there is none.",
    )
