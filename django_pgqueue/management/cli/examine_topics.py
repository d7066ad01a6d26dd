"""What the doctor asks of topics: the log's days, its horizon, and the groups."""

from __future__ import annotations

from collections.abc import Iterator

from django_pgqueue.conf import Settings
from django_pgqueue.log import doctor
from django_pgqueue.log.days import reopen_sql
from django_pgqueue.operators.findings import (
    PUBLISHING_SECONDS_MAX,
    START,
    Finding,
    ended_by,
    finding,
    named,
)
from django_pgqueue.operators.group_findings import of_halted
from django_pgqueue.operators.human import age, duration, shown, size
from django_pgqueue.operators.paging import STATEMENT_SECONDS_MAX
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.day_tables import DAYS_AHEAD_OF_LEADER as AHEAD
from django_pgqueue.postgres.limits import Plans, limit
from django_pgqueue.schedules.states import OVERDUE

# A group whose oldest unread message has outlived so much of its retention.
RETENTION_SHARE_MAX = 0.8

AHEAD_LEAST = 2

# A run of ingest that is to go on has not told how far it is, for so long and for so
# many triggers.
INGEST_SECONDS_MAX, INGEST_TRIGGERS_MAX = 300.0, 10

# So long groups may take to read the former partitions of a topic.
FORMER_SECONDS_MAX = 3_600.0


def topics(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Can messages be published and read, and does retention take what is unread?"""
    yield from _days(doctor.log_days(cursor))
    yield _horizon(doctor.held_back(cursor, seconds=PUBLISHING_SECONDS_MAX))
    kept, share = settings.retention, RETENTION_SHARE_MAX
    bounds = doctor.bounds(cursor, bytes_max=kept.log_bytes, share=share)
    yield _full(bounds.full)
    limit(cursor, seconds=STATEMENT_SECONDS_MAX, plans=Plans.IN_ORDER)
    behind = doctor.behind(cursor, default=kept.log, share=share, firsts=bounds.firsts)
    yield _behind(behind)
    uningested = doctor.uningested(cursor, default=kept.log, wait=kept.wait_for_ingest)
    yield _uningested(uningested)
    yield _stalled_ingest(doctor.stalled_ingest(cursor))
    yield of_halted(doctor.halted(cursor))
    yield from _scheduled(doctor.scheduled(cursor))
    yield _partitions(doctor.other_partitions(cursor))
    yield _former(doctor.former(cursor, seconds=FORMER_SECONDS_MAX))


def _days(found: doctor.LogDays) -> Iterator[Finding]:
    is_late = found.ahead < AHEAD_LEAST
    yield finding(
        check="log_days",
        wrong=is_late,
        what=f"The log has tables for {found.ahead} days ahead, of {AHEAD}.",
        value=found.ahead,
        limit=AHEAD_LEAST,
        way_out="A running worker makes them within a minute; without them, the first "
        "message of a day waits for its table.",
    )
    unclosed = [str(day) for day in found.unclosed]
    yield finding(
        check="log_closed",
        wrong=unclosed,
        what=f"Days of the log that are over are not closed: {named(unclosed)}.",
        right="Every day of the log that is over is closed.",
        value=unclosed,
        limit=doctor.CLOSED_LATE.total_seconds(),
        way_out="The worker that leads closes them, unless a transaction that has used "
        "their tables stays open: see log_horizon and prepared. Until then they are "
        "read by every reader, and retention removes none of them.",
    )

    early = [str(day) for day in found.early]
    yield finding(
        check="log_early",
        wrong=early,
        what=f"Days of the log are closed and not over: {named(early)}. The clock of "
        "the database was ahead; what is published into them is refused.",
        right="No day of the log is closed before it is over.",
        severity="error",
        value=early,
        way_out=f"Set its clock right. Then run: {reopen_sql(found.early)}",
    )


def _horizon(found: list[doctor.HeldBack]) -> Finding:
    if not found:
        return Finding(
            check="log_horizon",
            severity="ok",
            what="No transaction that publishes holds readers back.",
            value=0.0,
            limit=PUBLISHING_SECONDS_MAX,
        )
    first = found[0]
    holder = first.holder
    if holder.seconds is None:
        who, since, way_out = "A prepared transaction", "", ended_by(holder)
    else:
        name = shown(holder.application_name or "a session")
        who = f"{name}, process {holder.pid}, {holder.state or '?'},"
        since = f" for {age(holder.seconds)}"
        way_out = f"Commit sooner; or {ended_by(holder)}."
    others = len(found) - 1
    return Finding(
        check="log_horizon",
        severity="warning",
        what=f"{who} has published to {first.topic} and holds its readers back{since}"
        + (f"; {others} more hold readers back." if others else "."),
        value=holder.seconds,
        limit=PUBLISHING_SECONDS_MAX,
        way_out=way_out,
    )


def _full(found: list[doctor.Full]) -> Finding:
    told = [
        f"{each.topic or 'the log of all topics'} has {size(each.bytes)} of "
        f"{size(each.bytes_max)}"
        for each in found
    ]
    return finding(
        check="log_bytes",
        wrong=found,
        what="Days of the log that cannot go yet have more bytes than may be kept: "
        f"{named(told)}.",
        right="The log has no more bytes than it may have.",
        value=[each.topic or "*" for each in found],
        way_out="Whole days go, two hours after their end: keep more, by "
        "topic(…, retain_bytes=…) or RETENTION['log_bytes'], or publish less.",
    )


def _behind(found: list[doctor.Behind]) -> Finding:
    told = [
        f"{each.topic}/{each.group} (its oldest unread message is "
        f"{age(each.seconds)} old, kept {_how_long(each)})"
        for each in found
    ]
    return finding(
        check="groups_behind",
        wrong=found,
        what=f"Groups are about to lose messages: {named(told)}.",
        right="No group is about to lose messages that it has not read.",
        value=[f"{each.topic}/{each.group}" for each in found],
        limit=RETENTION_SHARE_MAX,
        way_out="Start more readers, resume it, or keep its topic's messages for "
        "longer: topic(…, retain=…, retain_bytes=…).",
    )


def _uningested(found: list[doctor.Uningested]) -> Finding:
    told = [
        *(f"{each.topic} has lost some" for each in found if each.is_lost),
        *(
            f"{each.topic} waits for {age(each.seconds)} of {age(each.wait_seconds)}"
            for each in found
            if each.is_waiting
        ),
    ]
    return finding(
        check="log_ingest",
        wrong=told,
        what="Messages are old enough to go, and the pipeline job ingest has not read "
        f"them: {named(told)}.",
        right="The pipeline job ingest has read what goes.",
        severity="error" if any(each.is_lost for each in found) else "warning",
        value=[each.topic for each in found],
        way_out="manage.py pgqueue_pipeline run ingest; what is lost is passed over "
        "with -o on_data_loss=continue. Or topic(…, wait_for_ingest=0).",
    )


def _stalled_ingest(found: list[doctor.StalledIngest]) -> Finding:
    told = [
        f"run {each.run}, with trigger={each.trigger}, is {each.state} and has not for "
        f"{age(each.seconds)}"
        for each in found
        if each.seconds
        > max(INGEST_SECONDS_MAX, INGEST_TRIGGERS_MAX * each.trigger_seconds)
    ]
    return finding(
        check="ingest_behind",
        wrong=told,
        what=f"The pipeline job ingest is to go on all the time, and to tell how far "
        f"it is: {named(told)}.",
        right="The pipeline job ingest goes on, or was not asked to.",
        value=len(told),
        limit=0,
        way_out="manage.py pgqueue_pipeline status ingest has its error; start it "
        "again with --restarts 10. If it is to end, "
        "pgqueue_pipeline stop ingest.",
    )


def _how_long(each: doctor.Behind) -> str:
    if each.is_large or each.keep_seconds is None:
        return "until its bound of bytes is reached"
    return f"for {duration(each.keep_seconds)}"


def _scheduled(found: doctor.Scheduled) -> Iterator[Finding]:
    late = found.late_seconds or 0.0
    yield finding(
        check="scheduled",
        wrong=late > OVERDUE.total_seconds(),
        what=f"Messages that are published later are overdue, the first for "
        f"{age(late)}.",
        right="No message that is published later is overdue.",
        severity="error",
        value=max(late, 0.0),
        limit=OVERDUE.total_seconds(),
        way_out=f"No living worker publishes them: {START}",
    )
    yield finding(
        check="unpublished",
        wrong=found.failed,
        what=f"{found.failed:,} message{'' if found.failed == 1 else 's'} could not be "
        f"published, such as for {shown(found.error)}.",
        right="No message that was due could not be published.",
        value=found.failed,
        way_out="Fix the cause: each is tried again within about a minute. Or cancel "
        "them: manage.py pgqueue scheduled",
    )


def _partitions(found: list[tuple[str, int, int]]) -> Finding:
    told = [f"{name} has {has}, code says {says}" for name, has, says in found]
    return finding(
        check="topics",
        wrong=found,
        what=f"Topics have other partitions than code declares: {named(told)}.",
        right="Every topic has the partitions that code declares.",
        value=[name for name, _has, _says in found],
        way_out="What a topic has stays until somebody says otherwise: manage.py "
        "pgqueue repartition TOPIC PARTITIONS; or write what it has into topic(…, "
        "partitions=…).",
    )


def _former(found: list[doctor.Former]) -> Finding:
    told = [
        f"{each.topic}, since {age(each.seconds)} ("
        + (
            ", ".join(f"{each.topic}/{group}" for group in each.groups)
            if each.groups
            else "a transaction is older than the change"
        )
        + ")"
        for each in found
    ]
    return finding(
        check="topics_former",
        wrong=found,
        what=f"Topics still have former partitions: {named(told)}.",
        right="No topic has former partitions that should have been read by now.",
        value=[each.topic for each in found],
        limit=FORMER_SECONDS_MAX,
        way_out="They are read beside the new ones, by id, which costs these groups "
        "some looks for each batch. Resume these groups, read halted partitions on, or "
        "forget a group; and end transactions that are older than the change.",
    )
