"""pgqueue publish: one message to a topic, now or later."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import (
    InvalidArgument,
    InvalidOption,
    PayloadTooLarge,
    TopicError,
    did_you_mean,
)
from django_pgqueue.log.names import topic_of
from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_USAGE, Output
from django_pgqueue.management.cli.words import (
    json_object,
    json_value,
    moment_or_length,
    plain_text,
)
from django_pgqueue.models import Topic
from django_pgqueue.operators.human import shown
from django_pgqueue.topics.publish import publish
from django_pgqueue.topics.registry import declared, find

HELP = "Publish one message to its topic."


def add_arguments(parser: Any) -> None:
    """Declare what publish() takes."""
    parser.add_argument(
        "name",
        type=plain_text,
        metavar="NAME",
        help="What it is called, such as orders.created: its topic is before the dot.",
    )
    parser.add_argument(
        "payload",
        type=json_value,
        metavar="PAYLOAD",
        help="""A JSON value, such as '{"id": 42}'.""",
    )
    parser.add_argument(
        "--key",
        type=plain_text,
        metavar="KEY",
        help="Messages of one key keep their order.",
    )
    parser.add_argument(
        "--headers",
        type=json_object,
        metavar="JSON",
        help="""Published along, an object, such as '{"by": "Ann"}'.""",
    )
    parser.add_argument(
        "--run-after",
        type=moment_or_length,
        metavar="TIME",
        help="Not before: 2026-01-31T12:00+01:00, or after so long: 90m, 2h, 1d.",
    )


def run(options: dict[str, Any], out: Output) -> int:
    """Publish it; say which id it has."""
    name = options["name"]
    topic = topic_of(name)
    rows = Topic.objects.using(get_settings().database)
    is_known = find(topic) is not None or rows.filter(name=topic).exists()
    try:
        message_id = publish(
            name,
            options["payload"],
            key=options["key"],
            headers=options["headers"],
            run_after=options["run_after"],
        )
    except (InvalidArgument, InvalidOption, PayloadTooLarge, TopicError) as error:
        raise CommandError(shown(error), returncode=EXIT_USAGE) from error
    if out.as_json:
        out.json({"id": message_id, "name": name})
    else:
        # Below zero is one of `pgqueue scheduled`.
        when = "is published" if message_id > 0 else "is published later"
        out.line(f"Message {message_id} of {shown(name)} {when}.")
    if not is_known:
        near = did_you_mean(topic, [each.name for each in declared()])
        out.note(f"Topic {shown(topic)} is new: no code declares it.{shown(near)}")
    return EXIT_DONE
