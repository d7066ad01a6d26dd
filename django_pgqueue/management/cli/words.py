"""Words: what the command line reads, checked before a database is asked.

Each reader raises argparse's own error, so that a wrong word ends with the usage, one
line, and exit status 2.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.core.management.base import CommandError

from django_pgqueue.bounds import LANE_CAPACITY_MAX, LANE_WEIGHT_MAX
from django_pgqueue.exceptions import PgQueueError, TopicError, did_you_mean
from django_pgqueue.exceptions import shown as in_error
from django_pgqueue.log.groups import GroupRow
from django_pgqueue.log.names import PARTITION_MAX, check_topic
from django_pgqueue.log.seek import EARLIEST, LATEST
from django_pgqueue.log.start import Start
from django_pgqueue.management.cli.output import Output
from django_pgqueue.models.job import ArchivedState, LiveState, Reason
from django_pgqueue.operators.human import in_utc, shown
from django_pgqueue.options.checks import check_priority, check_queue
from django_pgqueue.options.durations import as_timedelta
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.schedules.store import database_now
from django_pgqueue.tasks.registry import declared_names
from django_pgqueue.worker.serving import unknown_queue

# In place of a number or a rate: what the jobs or the settings say.
DEFAULT = "default"

ID_MAX = 2**63 - 1
ROWS_MAX = 10_000

STATES = (*LiveState.values, *ArchivedState.values, "dead")


def job_id(text: str) -> int:
    """Read the id of a job, also as #42."""
    digits = text.removeprefix("#")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= 19
    if not is_number or not 1 <= int(digits) <= ID_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no id of a job, such as 42")
    return int(digits)


def reading(check: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a reader of words that reports the errors of *check* as argparse does."""

    def read(text: str) -> Any:
        try:
            return check(text)
        except (PgQueueError, ValueError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


queue_name = reading(check_queue)
topic_name = reading(check_topic)


def whole_number(
    most: int, *, least: int = 1, others: str = ""
) -> Callable[[str], int]:
    """Return a reader of numbers up to *most*; its error names *others* there are."""

    def read(text: str) -> int:
        is_number = text.isascii() and text.isdecimal() and len(text) <= 19
        if not is_number or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not {others}a whole number from {least} to {most:,}"
            )
        return int(text)

    return read


def number_or_default(most: int) -> Callable[[str], int | None]:
    """Return a reader of numbers; None: what the jobs or the settings say."""
    read = whole_number(most, others=f"{DEFAULT}, nor ")
    return lambda text: None if text == DEFAULT else read(text)


capacity = number_or_default(LANE_CAPACITY_MAX)
weight = number_or_default(LANE_WEIGHT_MAX)
rows_count = whole_number(ROWS_MAX)
partition = whole_number(PARTITION_MAX, least=0, others="a partition, ")


def state(text: str) -> str:
    """Read a state."""
    return _one_of(text, STATES, "state")


def live_state(text: str) -> str:
    """Read a state of a job that is not done."""
    return _one_of(text, tuple(LiveState.values), "state of a live job")


def reason(text: str) -> str:
    """Read a reason of dead letters."""
    return _one_of(text, tuple(Reason.values), "reason")


def plain_text(text: str) -> str:
    """Read text that PostgreSQL can store."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is no text in UTF-8") from None
    return text


def moment_or_length(
    text: str, told: str = "how long from now"
) -> datetime | timedelta:
    """Read a time, or how long from now; without a zone, it is one of the project's."""
    try:
        return in_utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        pass
    try:
        return as_timedelta(text, name="the time", zero=False)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: write one such as 2026-01-31T12:00+01:00, or "
            f"{told}, such as 90m"
        ) from None


def moment_or_age(text: str) -> datetime | timedelta:
    """Read a time, or how long ago it was."""
    return moment_or_length(text, "how long ago")


def length(text: str, name: str, *, zero: bool = True) -> timedelta:
    """Read how long something is; the error calls it *name*."""
    read: timedelta = reading(partial(as_timedelta, name=name, zero=zero))(text)
    return read


age = partial(length, name="the age", zero=False)


def _json_of(text: str, kind: type[Any], name: str) -> Any:
    value = json_value(text)
    if not isinstance(value, kind):
        raise argparse.ArgumentTypeError(f"{in_error(text)} is no JSON {name}")
    return value


json_array = partial(_json_of, kind=list, name="array, such as [42]")
json_object = partial(_json_of, kind=dict, name='object, such as {"order_id": 42}')


def json_value(text: str) -> Any:
    """Read any JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(
            f"{in_error(text)} is no JSON: {error}"
        ) from None


@reading
def priority(text: str) -> int:
    """Read a priority."""
    return check_priority(int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else text)


def add_actions(parser: Any, told: Mapping[str, str]) -> dict[str, Any]:
    """Declare actions, by what is told of each, beside a list; return their parsers."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    actions.add_parser("list", help="All of them; also without an action.")
    return {
        name: actions.add_parser(name, help=text, description=text)
        for name, text in told.items()
    }


def add_limit(
    parser: Any, default: int, name: str = "--limit", what: str = "At most so many"
) -> None:
    """Declare how many rows are shown."""
    parser.add_argument(
        name,
        type=rows_count,
        default=default,
        metavar="N",
        help=f"{what} (default {default}).",
    )


def add_reason(parser: Any, kind: str) -> None:
    """Declare --reason, why a *kind* is paused."""
    parser.add_argument(
        "--reason",
        type=plain_text,
        default="",
        metavar="TEXT",
        help=f"Why: shown beside the {kind}.",
    )


def add_until(parser: Any) -> None:
    """Declare --until, when a pause ends by itself."""
    parser.add_argument(
        "--until",
        type=moment_or_length,
        metavar="TIME",
        help="It ends then: 2026-01-31T12:00+01:00, or after so long: 90m, 2h, 1d.",
    )


def add_force(parser: Any) -> None:
    """Declare --force, for a queue that is new."""
    parser.add_argument(
        "--force",
        action="store_true",
        help="Take the name of a queue that nothing has yet.",
    )


def check_is_known(name: str | None, options: dict[str, Any]) -> None:
    """
    Refuse the name of a queue that there is not, unless --force is given.

    Raises:
        CommandError: With the name that may have been meant; status 1.
    """
    said = None if name is None or options["force"] else unknown_queue(name)
    if said is not None:
        raise CommandError(f"{said} For one that is new, give --force.")


def check_is_declared(name: str) -> None:
    """
    Refuse the name of a task that no module declares.

    Raises:
        CommandError: With the name that may have been meant; status 1.
    """
    names = declared_names()
    if name not in names:
        raise CommandError(
            f"No task is declared as {shown(name)!r}.{shown(did_you_mean(name, names))}"
        )


def add_filters(parser: Any, *names: str) -> None:
    """Declare the filters of *names*: queue, task, tag, reason, error, since, age."""
    declared: dict[str, dict[str, Any]] = {
        "queue": {"type": queue_name, "metavar": "NAME", "help": "Of this queue."},
        "task": {"type": plain_text, "metavar": "NAME", "help": "Of this task."},
        "tag": {"type": plain_text, "metavar": "TAG", "help": "With this tag."},
        "reason": {
            "type": reason,
            "metavar": "REASON",
            "help": f"With this reason: {', '.join(Reason.values)}.",
        },
        "error": {
            "type": plain_text,
            "dest": "error_named",
            "metavar": "CLASS",
            "help": "Whose last error is of this class: shop.errors.Declined, or "
            "Declined of whatever module.",
        },
        "since": {
            "type": moment_or_age,
            "metavar": "TIME",
            "help": "That gave up then or later: 2026-01-31T12:00+01:00, or so long "
            "ago at most: 90m, 2h, 1d.",
        },
        "age": {
            "type": age,
            "dest": "older",
            "metavar": "LENGTH",
            "help": "That gave up so long ago at least: 90m, 2h, 1d.",
        },
    }
    for name in names:
        parser.add_argument(f"--{name}", **declared[name])


def _one_of(text: str, words: tuple[str, ...], kind: str) -> str:
    if text not in words:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no {kind}; there are {', '.join(words)}."
            f"{did_you_mean(text, list(words))}"
        )
    return text


# Topics, groups, and places in a log --------------------------------------------------


# A moment, how long before now, an id, or an end of the log.
Place = datetime | Start | int | str


def group_name(text: str) -> tuple[str, str]:
    """Read TOPIC/GROUP."""
    topic, slash, name = text.partition("/")
    if not slash or not topic or not name:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no group: write its topic and its name, such as orders/stats"
        )
    return topic, name


def place(text: str) -> Place:
    """Read a place in a log."""
    if text in (EARLIEST, LATEST):
        return text
    if text.isascii() and text.isdecimal() and len(text) <= 19:
        if int(text) <= ID_MAX:
            return int(text)
    else:
        try:
            return in_utc(datetime.fromisoformat(text))
        except (ValueError, OverflowError):
            pass
        try:
            return Start.parse(text)
        except TopicError:
            pass
    raise argparse.ArgumentTypeError(
        f"{text!r} is no place in a log: write earliest, latest, the id of a message, "
        f"a time such as 2026-01-31T12:00+01:00, or how long ago, such as 90m or "
        f"'2 hours ago'"
    )


def resolved(cursor: Cursor, said: Place) -> int | str | datetime:
    """Return a place with how long ago as a moment, by the database's clock."""
    if not isinstance(said, Start):
        return said
    assert said.ago is not None
    return in_utc(database_now(cursor)) - said.ago


def chosen(
    rows: list[GroupRow], asked: tuple[str, str], out: Output
) -> GroupRow | None:
    """Return the group that is asked for; if there is none, say which may be meant."""
    row = next((each for each in rows if (each.topic, each.name) == asked), None)
    if row is None:
        name = "/".join(asked)
        near = did_you_mean(name, [str(each) for each in rows])
        out.note(f"No consumer group is called {shown(name)!r}.{shown(near)}")
    return row
