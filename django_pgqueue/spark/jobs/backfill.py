"""
Backfill: history for a subscription or a group that began with what came.

    manage.py pgqueue_pipeline run backfill -o topic=orders -o path=/srv/log
        -o to=subscription:stats/orders.paid

What retention has removed from the log comes from files of ingest, what it has left
from the log, and what is published from the live flow: each message once. One
transaction makes the jobs of the first and lets the second begin: see
log/backfill.py.
"""

from __future__ import annotations

from typing import Any

from django_pgqueue.exceptions import SparkError, SparkOptionError, raised_as
from django_pgqueue.log import receivers
from django_pgqueue.log.backfill import History, begin, history, made_at
from django_pgqueue.log.start import EARLIEST, Start
from django_pgqueue.spark import replay
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.lake.table import checked_target
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.write.journal import Outcome, Write
from django_pgqueue.spark.write.parts import OF_LOG

KINDS = ("subscription", "group")


@pipeline_job(name="backfill", in_queue=False, takes_out=())
def backfill(
    run: Run,
    *,
    topic: str = "",
    to: str = "",
    path: str = "",
    since: str = EARLIEST,
    rate: int = 0,
    name: str | None = None,
    refused_path: str | None = None,
    preview: bool = False,
) -> int:
    """
    Give a new subscription or group the history of a topic, each message once.

    Options: topic; to, subscription:QUEUE/PATTERN or group:NAME; path, where ingest has
    written the topic, which may be left out while its log has all; since, a time; rate,
    so many a second from files; name; refused_path; preview, which counts and writes
    nothing.
    """
    if not topic or to.partition(":")[0] not in KINDS:
        raise SparkOptionError(
            "Whose history, and for whom? Give -o topic=orders and "
            "-o to=subscription:QUEUE/PATTERN or to=group:NAME."
        )
    with raised_as(SparkOptionError, "The option since: "):
        start = Start.parse(since)
    per_second = replay.rate_of(rate)
    target = path and checked_target(path)
    with run.reading() as cursor:
        _, receiver = receivers.find(cursor, topic, to)
        known = history(cursor, topic, target)
        made = made_at(cursor, topic, receiver)
    name = name or f"backfill {topic} {receiver['name']} {made:%Y-%m-%d %H:%M:%S}"
    moment = replay.moment_of(start, run.started_at)
    begins = EARLIEST if moment is None else moment.isoformat()
    if not preview and replay.is_written(run, name):
        return 0
    _check_history(topic, target, known)
    frame = None
    if target and known.removed_to:
        frame = replay.lake_messages(run, target, topic, since=moment)
        frame = frame.where(f"id <= {known.removed_to}")
    if preview:
        if frame is not None:
            replay.tell_frame(run, frame, of_jobs=False)
        run.note(f"What comes after the id {known.removed_to:,} is in the log.")
        return 0
    done = 0
    if frame is not None and not frame.isEmpty():
        done = run.enqueue(
            frame.select(*OF_LOG),
            name=name,
            topic=topic,
            receiver=to,
            backfill=f"{known.removed_to} {begins}",
            perSecond=None if per_second is None else str(per_second),
            refusedPath=refused_path,
        )
    else:

        def begin_log(connection: Any, write: Write, outcome: Outcome) -> None:
            begin(
                connection.cursor(),
                topic,
                receiver,
                start=begins,
                removed_to=known.removed_to,
            )

        replay.write_named(run, name, begin_log, keeps_empty=True)
    run.note(
        f"{topic} → {to}: up to the id {known.removed_to:,} from files; the workers do "
        f"what the log has from there on."
    )
    return done


def _check_history(topic: str, target: str, known: History) -> None:
    """Raise SparkError where messages are neither in the log nor in files."""
    if not known.removed_to or not target:
        return
    if known.read_to is None:
        raise SparkError(
            f"Nobody has noted what of the topic {topic!r} is at {target}. Run ingest "
            f"to that very path first."
        )
    if known.read_to < known.removed_to:
        raise SparkError(
            f"Messages of the topic {topic!r} with ids from {known.read_to + 1:,} to "
            f"{known.removed_to:,} are neither in the log nor at {target}: retention "
            f"has removed them before ingest wrote them. Replay what there is with "
            f"the pipeline job replay."
        )
