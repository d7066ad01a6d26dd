"""Asked: what the options of the pipeline job replay say, checked before Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django_pgqueue.bounds import PER_SECOND_MAX, QUEUE_NAME
from django_pgqueue.exceptions import SparkOptionError, TopicError
from django_pgqueue.log.names import check_topic
from django_pgqueue.log.replay import place
from django_pgqueue.log.start import EARLIEST, Start
from django_pgqueue.spark.lake.table import checked_target
from django_pgqueue.spark.option_table import Word
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.write.result import digest

LOG, ARCHIVE = "log", "archive"
TOPIC, QUEUE = "topic:", "queue:"

# What says which jobs, and which messages, are meant.
OF_JOBS = ("task", "queue", "state")
# How a job of the archive ended.
STATE = Word(("succeeded", "expired", "cancelled"))
# What only files have.
OF_FILES = ("where", "refused_path")


@dataclass(frozen=True, slots=True)
class Asked:
    """
    What is brought back, and to whom.

    Attributes:
        source: "log", "archive", or where files are.
        topic: Whose messages; "": it is about jobs.
        to: As "topic:orders", "group:stats"; "": jobs go to their own queues.
        since: An id of a message, or a time.
        until: Likewise; None: all that there is by now.
        where: A condition of Spark; None: any.
        jobs: Which jobs, by column.
        rate: How many are due a second; None: all at once.
        name: It is done once under it.
        refused_path: Where refused rows go; None: one of them fails it all.
    """

    source: str
    topic: str
    to: str
    since: int | Start
    until: int | Start | None
    where: str | None
    jobs: Mapping[str, str]
    rate: int | None
    name: str
    refused_path: str | None

    @property
    def to_topic(self) -> str | None:
        """The topic that messages are published to; None: they go elsewhere."""
        return self.to.removeprefix(TOPIC) if self.to.startswith(TOPIC) else None


def asked(run: Run) -> Asked:
    """
    Return what the run's options say.

    Raises:
        SparkOptionError: One is missing, cannot be, or says nothing beside another.
    """
    given = run.options
    source = given["source"]
    if not source:
        raise SparkOptionError(
            "What is replayed? Give -o source=log, -o source=archive, or the path or "
            "URI of what ingest or export has written."
        )
    is_file = source not in (LOG, ARCHIVE)
    topic, to = given["topic"], given["to"]
    if source == LOG and not topic:
        raise SparkOptionError("Whose log is replayed? Give -o topic=orders.")
    if source == ARCHIVE and topic:
        raise SparkOptionError(
            "The archive has jobs and no messages: give -o task=… or -o queue=…, or "
            "-o source=log with the topic."
        )
    for name in (*OF_JOBS, *OF_FILES):
        is_of_it = not topic if name in OF_JOBS else is_file
        if given[name] is not None and not is_of_it:
            what = "jobs" if name in OF_JOBS else "files"
            raise SparkOptionError(f"The option {name} is for {what}.")
    if given["state"] is not None:
        STATE("state", given["state"])
    if topic and not to:
        raise SparkOptionError(
            "Who gets the messages? Give -o to=topic:orders, "
            "to=subscription:QUEUE/PATTERN, to=group:NAME or to=queue:NAME of a pull "
            "queue."
        )
    if not topic and to and not _is_queue(to):
        raise SparkOptionError(
            f"The option to is {to[:80]!r}: jobs go to their own queues, or to another "
            f"one with -o to=queue:NAME. For files of messages, give -o topic=orders."
        )
    return Asked(
        source=checked_target(source) if is_file else source,
        topic=_topic(topic) if topic else "",
        to=f"{TOPIC}{_topic(to.removeprefix(TOPIC))}" if to.startswith(TOPIC) else to,
        since=_place("since", given["since"], of_jobs=not topic),
        until=None
        if given["until"] is None
        else _place("until", given["until"], of_jobs=not topic),
        where=given["where"],
        jobs={name: given[name] for name in OF_JOBS if given[name] is not None},
        rate=rate_of(given["rate"]),
        name=given["name"] or _name(run),
        refused_path=given["refused_path"],
    )


def rate_of(given: int) -> int | None:
    """Return how many a second; raise SparkOptionError."""
    if not 0 <= given <= PER_SECOND_MAX:
        raise SparkOptionError(
            f"The option rate is {given:,}; it must be from 1 to {PER_SECOND_MAX:,} a "
            f"second, or 0: as fast as it goes."
        )
    return given or None


def moment_of(said: int | Start, now: datetime) -> datetime | None:
    """Return the moment that *said* is, and no id; None: it is "earliest"."""
    assert isinstance(said, Start)
    if said.ago is not None:
        return now - said.ago
    return None if said.text == EARLIEST else datetime.fromisoformat(said.text)


def _name(run: Run) -> str:
    """Return a name that is the same whenever, on the same day, the same is asked."""
    given = {name: said for name, said in run.options.items() if name != "preview"}
    return f"replay {run.started_at:%Y-%m-%d} {digest(given)}"


def _place(name: str, value: str | None, *, of_jobs: bool) -> int | Start:
    if value is None:
        raise SparkOptionError(
            "Where does it begin? Give -o since=earliest, a time such as "
            "2026-11-22T00:00Z, or '2 days ago'."
        )
    is_id = value.isascii() and value.isdigit()
    if is_id and of_jobs:
        raise SparkOptionError(
            f"The option {name} is {value[:40]!r}: of jobs it is a time, at which they "
            f"ended, and not an id."
        )
    try:
        return place(name, int(value) if is_id else value)
    except TopicError as error:
        raise SparkOptionError(f"The option {error}") from None


def _topic(name: str) -> str:
    try:
        return check_topic(name)
    except TopicError as error:
        raise SparkOptionError(str(error)) from None


def _is_queue(to: str) -> bool:
    name = to.removeprefix(QUEUE)
    return to.startswith(QUEUE) and QUEUE_NAME.fullmatch(name) is not None
