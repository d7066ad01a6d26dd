"""
Telemetry: what happens becomes signals and log lines, in one place.

A line per job at DEBUG; failures, retries, dead letters, start and stop at INFO or
above. A signal that nobody listens to and a line that nobody reads cost a look-up
each: nothing is formatted for them.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

from django.dispatch import Signal

from django_pgqueue import signals
from django_pgqueue.conf import MAIL_TASK
from django_pgqueue.exceptions import UnknownTask

logger = logging.getLogger("django_pgqueue.worker")


def send(signal: Signal, sender: Any, **fields: Any) -> None:
    """Send a signal if anybody listens; what a receiver raises is logged."""
    if not signal.receivers or not signal.has_listeners(sender):
        return
    for receiver, answer in signal.send_robust(sender=sender, **fields):
        if isinstance(answer, Exception):
            logger.error("receiver failed receiver=%r", receiver, exc_info=answer)


class Sink(NamedTuple):
    """Where the events of a job go."""

    send: Callable[..., object]
    logger: logging.Logger


def send_plainly(signal: Signal, sender: Any, **fields: Any) -> None:
    """Send a signal; what a receiver raises comes out."""
    signal.send(sender=sender, **fields)


# Makes of an error what log handlers may see of it: tasks/settlement.py, in a worker.
Report = Callable[[BaseException], BaseException]


def itself(error: BaseException) -> BaseException:
    """Return the error."""
    return error


WORKER = Sink(send, logger)
# Of jobs that a test runs in its own thread: it sees what a receiver raises, and its
# output has no lines of ours.
_QUIET = logging.Logger("quiet", logging.CRITICAL + 1)  # noqa: LOG001  # Of no tree.
TEST = Sink(send_plainly, _QUIET)


# What makes the fields of the job, or of the batch, that runs here, and what of: for
# log lines of its own, by logs.py.
current: ContextVar[tuple[Any, ...] | None] = ContextVar("current", default=None)


def fields_of(job: Any) -> dict[str, Any]:
    """Return what a log line about a job has as fields of its record, for extra=."""
    return {
        "job_id": job.id,
        "task": job.task,
        "queue": job.queue,
        "attempt": job.attempt,
        "trace_id": trace_id_of(job.headers),
    }


def fields_of_group(consumer: Any, partition: int) -> dict[str, Any]:
    """Return what a line about a consumer group has, as fields_of()."""
    return {
        "task": consumer.task.name,
        "queue": consumer.queue,
        "topic": consumer.topic,
        "group": consumer.group,
        "partition": partition,
    }


def trace_id_of(headers: str) -> str | None:
    """Return the trace that the JSON text of headers names: 32 hexadecimal digits."""
    if '"traceparent"' not in headers:
        return None
    try:
        parent = json.loads(headers)["trace"]["traceparent"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None  # A row written by SQL may hold anything.
    found = TRACE_PARENT.match(parent) if isinstance(parent, str) else None
    return found and found["trace"]


TRACE_PARENT = re.compile(r"[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-[0-9a-f]{16}-")


def started(sender: Any, job: Any, *, to: Sink = WORKER) -> None:
    """Tell that a task is about to be called."""
    if signals.job_started.receivers:
        to.send(signals.job_started, sender, job=job)
    if to.logger.isEnabledFor(logging.DEBUG):
        waited = (job.claimed_at - job.due_at).total_seconds() * 1000
        to.logger.debug(
            "started    job=%d task=%s attempt=%d waited=%.0fms",
            job.id,
            job.task,
            job.attempt,
            waited,
            extra=fields_of(job),
        )


def succeeded(
    sender: Any,
    job: Any,
    *,
    ran_seconds: float,
    result: str | None = None,
    to: Sink = WORKER,
) -> None:
    """Tell that an ack is committed."""
    to.send(
        signals.job_succeeded, sender, job=job, ran_seconds=ran_seconds, result=result
    )
    if to.logger.isEnabledFor(logging.DEBUG):
        to.logger.debug(
            "succeeded  job=%d task=%s attempt=%d ran=%.0fms",
            job.id,
            job.task,
            job.attempt,
            ran_seconds * 1000,
            extra=fields_of(job),
        )


def retried(
    sender: Any,
    job: Any,
    *,
    error: BaseException | None,
    delay_seconds: float,
    to: Sink = WORKER,
) -> None:
    """Tell that a job waits for its next attempt."""
    to.send(
        signals.job_retried,
        sender,
        job=job,
        error=error,
        delay_seconds=delay_seconds,
    )
    if isinstance(error, UnknownTask):
        to.logger.warning(
            "unknown    job=%d task=%s next=+%.1fs: %s",
            job.id,
            job.task,
            delay_seconds,
            error,
            extra=fields_of(job),
        )
        return
    to.logger.info(
        "retry      job=%d task=%s attempt=%d/%d next=+%.1fs error=%s",
        job.id,
        job.task,
        job.attempt,
        job.max_attempts,
        delay_seconds,
        type(error).__name__,
        extra=fields_of(job),
    )


def dead(
    sender: Any,
    job: Any,
    *,
    reason: str,
    error: BaseException | None,
    report: Report = itself,
    to: Sink = WORKER,
) -> None:
    """Tell that a job moved to the dead letters: an error, as a failed request is."""
    to.send(signals.job_dead, sender, job=job, reason=reason, error=error)
    # Of a mail that cannot be sent no mail is written: that one would fail, too.
    level = logging.WARNING if job.task == MAIL_TASK else logging.ERROR
    if not to.logger.isEnabledFor(level):
        return
    to.logger.log(
        level,
        "dead       job=%d task=%s attempt=%d/%d reason=%s error=%s",
        job.id,
        job.task,
        job.attempt,
        job.max_attempts,
        reason,
        type(error).__name__ if error else "-",
        exc_info=report(error) if error and level == logging.ERROR else None,
        extra=fields_of(job),
    )


def cancelled(sender: Any, job: Any, *, to: Sink = WORKER) -> None:
    """Tell that a job ended as cancelled."""
    to.send(signals.job_cancelled, sender, job=job)
    to.logger.info("cancelled  job=%d task=%s", job.id, job.task, extra=fields_of(job))


def superseded(sender: Any, job: Any, *, holder: int, to: Sink = WORKER) -> None:
    """Tell that a job ended as cancelled, since job *holder* has its dedup key."""
    to.send(signals.job_cancelled, sender, job=job)
    to.logger.info(
        "superseded job=%d task=%s attempt=%d/%d by=%d: that one has its dedup key",
        job.id,
        job.task,
        job.attempt,
        job.max_attempts,
        holder,
        extra=fields_of(job),
    )


def expired(sender: Any, job: Any, *, to: Sink = WORKER) -> None:
    """Tell that a job's time had passed before it could start."""
    to.send(signals.job_expired, sender, job=job)
    to.logger.info("expired    job=%d task=%s", job.id, job.task, extra=fields_of(job))


def stale(sender: Any, job: Any, *, kind: str, to: Sink = WORKER) -> None:
    """Tell that a settle found the job to be somebody else's."""
    to.send(
        signals.settle_stale,
        sender,
        job_id=job.id,
        delivery=job.delivery,
        kind=kind,
    )
    to.logger.warning(
        "stale      job=%d task=%s delivery=%d kind=%s: its lease was taken over, "
        "nothing was written",
        job.id,
        job.task,
        job.delivery,
        kind,
        extra=fields_of(job),
    )


def ticked(sender: Any, tick: Any, *, late_seconds: float) -> None:
    """Tell of a tick of a schedule; a warning, if nothing came of it."""
    send(
        signals.schedule_ticked,
        sender,
        schedule=tick.schedule,
        due_at=tick.due_at,
        outcome=tick.outcome,
        job_id=tick.job_id,
        message_id=tick.message_id,
        missed=tick.missed,
        late_seconds=late_seconds,
    )
    came_of_it = tick.message_id if tick.job_id is None else tick.job_id
    level = logging.WARNING if came_of_it is None else logging.INFO
    logger.log(
        level,
        "ticked     schedule=%s due=%s outcome=%s %s=%s late=%.1fs missed=%d",
        tick.schedule,
        tick.due_at.isoformat(),
        tick.outcome,
        "job" if tick.message_id is None else "message",
        came_of_it or "-",
        late_seconds,
        tick.missed,
    )


def consumed(consumer: Any, claimed: Any, *, count: int, ran_seconds: float) -> None:
    """Tell that a batch of a group is done."""
    send(
        signals.messages_consumed,
        consumer.task,
        topic=consumer.topic,
        group=consumer.group,
        partition=claimed.partition,
        count=count,
        ran_seconds=ran_seconds,
    )
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(
            "consumed   group=%s partition=%d messages=%d ran=%.0fms",
            consumer,
            claimed.partition,
            count,
            ran_seconds * 1000,
            extra=fields_of_group(consumer, claimed.partition),
        )


def batch_failed(
    consumer: Any,
    claimed: Any,
    *,
    messages: Any,
    error: BaseException | None,
    delay_seconds: float,
    one_by_one: bool,
) -> None:
    """Tell that a batch comes again."""
    logger.info(
        "retry      group=%s partition=%d messages=%d first=%d failures=%d next=+%.1fs"
        "%s error=%s",
        consumer,
        claimed.partition,
        len(messages),
        messages[0].id,
        claimed.failures + 1,
        delay_seconds,
        " one by one" if one_by_one and len(messages) > 1 else "",
        type(error).__name__,
        extra=fields_of_group(consumer, claimed.partition),
    )


def halted(
    consumer: Any,
    claimed: Any,
    message: Any,
    *,
    error: BaseException | None,
    report: Report = itself,
) -> None:
    """Tell that a partition of a group is read no further."""
    send(
        signals.group_halted,
        consumer.task,
        topic=consumer.topic,
        group=consumer.group,
        partition=claimed.partition,
        message_id=message.id,
        error=error,
    )
    logger.error(
        "halted     group=%s partition=%d message=%d error=%s: nothing of the "
        "partition is read until somebody resumes it or seeks",
        consumer,
        claimed.partition,
        message.id,
        type(error).__name__ if error else "-",
        exc_info=report(error) if error else None,
        extra=fields_of_group(consumer, claimed.partition),
    )


def message_dead(
    consumer: Any,
    claimed: Any,
    message: Any,
    *,
    dead: int | None,
    reason: str,
    error: BaseException | None,
    report: Report = itself,
) -> None:
    """Tell that a message became a dead letter, and that its group goes on."""
    send(
        signals.message_dead_lettered,
        consumer.task,
        topic=consumer.topic,
        group=consumer.group,
        partition=claimed.partition,
        message_id=message.id,
        dead_letter=dead,
        reason=reason,
        error=error,
    )
    logger.error(
        "dead       job=%d group=%s partition=%d message=%d reason=%s error=%s",
        dead,
        consumer,
        claimed.partition,
        message.id,
        reason,
        type(error).__name__ if error else "-",
        exc_info=report(error) if error else None,
        extra=fields_of_group(consumer, claimed.partition),
    )


def failed_after_ack(
    consumer: Any, claimed: Any, error: BaseException, report: Report = itself
) -> None:
    """Tell of an error after the position was moved: nothing is tried again."""
    logger.error(
        "failed     group=%s partition=%d after its position was moved",
        consumer,
        claimed.partition,
        exc_info=report(error),
        extra=fields_of_group(consumer, claimed.partition),
    )


def position_stale(consumer: Any, claimed: Any) -> None:
    """Tell that a reader found its partition to be somebody else's."""
    logger.warning(
        "stale      group=%s partition=%d fence=%d: it was taken over or sought, "
        "nothing was written",
        consumer,
        claimed.partition,
        claimed.fence,
        extra=fields_of_group(consumer, claimed.partition),
    )


def released(consumer: Any, partitions: list[int]) -> None:
    """Tell that a reader gives back what it did not know that it had."""
    logger.warning(
        "released   group=%s partitions=%s: they were leased to a reader that got no "
        "answer; they are read again",
        consumer,
        ",".join(map(str, partitions)),
    )


def batch_late(consumer: Any, claimed: Any) -> None:
    """Tell that a reader's lease was over before its function could be called."""
    logger.warning(
        "late       group=%s partition=%d fence=%d: its lease of %gs was over before "
        "the function was called, so it was not",
        consumer,
        claimed.partition,
        claimed.fence,
        consumer.lease.total_seconds(),
        extra=fields_of_group(consumer, claimed.partition),
    )


def lapsed(consumer: Any, claimed: Any) -> None:
    """Tell that a reader has died, or took longer than its lease."""
    logger.warning(
        "lapsed     group=%s partition=%d reader=%s failures=%d: it died, or took "
        "longer than its lease",
        consumer,
        claimed.partition,
        claimed.lapsed_by,
        claimed.failures,
        extra=fields_of_group(consumer, claimed.partition),
    )


def subscription_lost_messages(sender: Any, loss: Any) -> None:
    """Tell that retention removes what a back-fill has made no job for yet."""
    told = loss._asdict()
    del told["task"]
    send(signals.subscription_lost_messages, sender, **told)
    logger.error(
        "lost       subscription=%s → %s topic=%s messages=%d%s ids=%d..%d: they are "
        "kept no longer, and its back-fill %s",
        loss.pattern,
        loss.queue,
        loss.topic,
        loss.messages,
        "" if loss.is_exact else "+",
        loss.first_id,
        loss.last_id,
        "is disabled" if loss.is_disabled else "has not come to them",
    )


def group_lost_messages(sender: Any, loss: Any) -> None:
    """Tell that a group is halted: what it has not read is removed by retention."""
    told = loss._asdict()
    del told["task"]
    send(signals.group_lost_messages, sender, **told)
    logger.error(
        "lost       group=%s/%s messages=%d%s ids=%d..%d partitions=%s: they are kept "
        "no longer; the group is halted",
        loss.topic,
        loss.group,
        loss.messages,
        "" if loss.is_exact else "+",
        loss.first_id,
        loss.last_id,
        ",".join(map(str, loss.partitions)),
    )


def subscription_full(sender: Any, full: Any, depth: int) -> None:
    """Tell that a subscription has as many jobs as its backlog says."""
    send(
        signals.subscription_full,
        sender,
        pattern=full.pattern,
        queue=full.queue,
        on_full=full.on_full,
        depth=depth,
        depth_max=full.depth_max,
    )
    logger.warning(
        "full       subscription=%s → %s jobs=%d of %d, on_full=%s",
        full.pattern,
        full.queue,
        depth,
        full.depth_max,
        full.on_full,
    )
