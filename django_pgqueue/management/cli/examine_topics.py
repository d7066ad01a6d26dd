"""What the doctor asks of topics: days, groups, subscriptions and captures."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.apps import apps

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import TopicError
from django_pgqueue.log import doctor
from django_pgqueue.log.backlogs import FullOne, find_full
from django_pgqueue.log.captures import find_all as find_captures
from django_pgqueue.log.days import reopen_sql
from django_pgqueue.log.groups import GroupRow
from django_pgqueue.log.groups import find_all as find_groups
from django_pgqueue.log.lag import lags
from django_pgqueue.log.names import Pattern
from django_pgqueue.log.retain_backfills import (
    BackfillBehind,
    behind_backfills,
    lost_lately,
)
from django_pgqueue.log.subscriptions import STALE_AFTER, SubscriptionRow
from django_pgqueue.log.subscriptions import find_all as find_subscriptions
from django_pgqueue.operations import declared_captures
from django_pgqueue.operators.findings import (
    PUBLISHING_SECONDS_MAX,
    START,
    Finding,
    ended_by,
    finding,
    named,
    of_halted,
    of_unserved,
)
from django_pgqueue.operators.human import age, duration, share, shown, size
from django_pgqueue.operators.paging import STATEMENT_SECONDS_MAX
from django_pgqueue.operators.states import has_reader
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.day_tables import DAYS_AHEAD_OF_LEADER as AHEAD
from django_pgqueue.postgres.limits import Plans, limit
from django_pgqueue.schedules.timetables import OVERDUE
from django_pgqueue.tasks import registry
from django_pgqueue.topics.consume import declared
from django_pgqueue.worker.serving import living_plans

# Topics -------------------------------------------------------------------------------


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
    yield _log_full(bounds.full)
    limit(cursor, seconds=STATEMENT_SECONDS_MAX, plans=Plans.IN_ORDER)
    behind = doctor.behind(cursor, default=kept.log, share=share, firsts=bounds.firsts)
    yield _groups_behind(behind)
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


def _log_full(found: list[doctor.Full]) -> Finding:
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


def _groups_behind(found: list[doctor.Behind]) -> Finding:
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


# Groups -------------------------------------------------------------------------------


# Messages counted of each partition of a group that nobody reads for.
UNREAD_MESSAGES_MAX = 1_000


def groups(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Does a living worker read for every group, and does code still declare it?"""
    rows = find_groups(cursor)
    # What the code here declares is not without code, however long no worker ran.
    here = {(each.topic, each.group) for each in declared()}
    stale = [row for row in rows if row.is_stale and (row.topic, row.name) not in here]
    # More workers do not help one that has no code.
    yield from _unserved(cursor, [row for row in rows if row not in stale])
    yield _stale_groups(stale)


def _unserved(cursor: Cursor, rows: list[GroupRow]) -> Iterator[Finding]:
    plans = living_plans(cursor)
    unserved = [
        row for row in rows if row.paused_at is None and not has_reader(row, plans)
    ]
    limit(cursor, seconds=STATEMENT_SECONDS_MAX, plans=Plans.IN_ORDER)
    found = lags(cursor, [row.id for row in unserved], limit=UNREAD_MESSAGES_MAX)
    yield from of_unserved(
        {row: found[row.id] for row in unserved}, limit=UNREAD_MESSAGES_MAX
    )


def _stale_groups(rows: list[GroupRow]) -> Finding:
    return finding(
        check="groups_stale",
        wrong=rows,
        what=f"Groups were not declared for {STALE_AFTER.days} days, and nobody reads "
        f"for them: {named(list(map(str, rows)))}.",
        right="Every group is declared.",
        value=[str(row) for row in rows],
        limit=STALE_AFTER.total_seconds(),
        way_out="Unless their code comes back: manage.py pgqueue groups pause "
        "TOPIC/GROUP, then manage.py pgqueue groups forget TOPIC/GROUP",
    )


# Subscriptions ------------------------------------------------------------------------


# What one that is full does; None: its code says no bound any more.
DOES = {
    "pause": "its messages stay in the log",
    "drop_oldest": "its oldest jobs are cancelled",
    "refuse": "its messages are refused",
    None: "it is let go",
}

# A loss is told for so long.
LOST_LATELY = timedelta(days=7)


def subscriptions(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Does somebody want what every subscription routes, and can it run?"""
    rows = find_subscriptions(cursor)
    yield _stale_subscriptions([row for row in rows if row.is_stale])
    yield _subscribed_tasks(
        [row for row in rows if row.disabled_at is None and not row.is_stale]
    )
    yield _patterns([row for row in rows if row.disabled_at is None])
    yield _backlogs_full(find_full(cursor))
    default = settings.retention.log
    yield _backfills_behind(
        behind_backfills(cursor, default=default, share=RETENTION_SHARE_MAX)
    )
    yield _lost(lost_lately(cursor, period=LOST_LATELY))


def _backlogs_full(found: list[FullOne]) -> Finding:
    told = [
        f"{each} ({share(each.jobs or 0, each.depth_max or 0)}, {DOES[each.on_full]}, "
        f"for {age(each.seconds)})"
        for each in found
    ]
    return finding(
        check="backlogs",
        wrong=found,
        what=f"Subscriptions have as many jobs as may wait: {named(told)}.",
        right="Every subscription with a backlog has room.",
        value=[str(each) for each in found],
        way_out="Run more workers for their queues, or allow more: "
        "@subscribe(…, backlog=…). What stays in the log goes with its retention.",
    )


def _backfills_behind(found: list[BackfillBehind]) -> Finding:
    told = [
        f"{each}{' (disabled)' if each.is_disabled else ''}: a message of {each.topic} "
        f"is {age(each.seconds)} old, kept for {duration(each.keep_seconds)}"
        for each in found
    ]
    return finding(
        check="backfills_behind",
        wrong=found,
        what=f"Back-fills are about to lose messages: {named(told)}.",
        right="No back-fill is about to lose messages that have no job yet.",
        value=[str(each) for each in found],
        limit=RETENTION_SHARE_MAX,
        way_out="Enable the subscription, delete it, or keep its topic's messages for "
        "longer: topic(…, retain=…).",
    )


def _lost(found: list[tuple[str, str, str]]) -> Finding:
    told = [f"{pattern} → {queue}: {message}" for pattern, queue, message in found]
    return finding(
        check="backfills_lost",
        wrong=found,
        what=f"Back-fills lost messages in the last {LOST_LATELY.days} days. "
        f"{named(told)}",
        right=f"No back-fill lost messages in the last {LOST_LATELY.days} days.",
        value=[f"{pattern} → {queue}" for pattern, queue, _message in found],
        way_out="They are gone, and have no job. It is told for "
        f"{LOST_LATELY.days} days.",
    )


def _stale_subscriptions(rows: list[SubscriptionRow]) -> Finding:
    return finding(
        check="stale",
        wrong=rows,
        what=f"Subscriptions were not declared for {STALE_AFTER.days} days, and still "
        f"make a job of each message: {named(list(map(str, rows)))}.",
        right="Every subscription of code is declared.",
        value=[str(row) for row in rows],
        limit=STALE_AFTER.total_seconds(),
        way_out="Disable or delete them in the admin, unless their code comes back.",
    )


def _subscribed_tasks(rows: list[SubscriptionRow]) -> Finding:
    unknown = [row for row in rows if row.task not in registry.tasks]
    return finding(
        check="subscribed_tasks",
        wrong=unknown,
        what=f"Subscriptions have a task that is not declared here: "
        f"{named(list(map(str, unknown)))}.",
        right="The task of every subscription is declared.",
        value=[str(row) for row in unknown],
        way_out="Deploy the code that has it, or disable them; their jobs wait, and "
        "then are dead.",
    )


def _patterns(rows: list[SubscriptionRow]) -> Finding:
    wrong = [row for row in rows if not _is_sound(row)]
    return finding(
        check="patterns",
        wrong=wrong,
        what=f"Subscriptions have a topic or an expression that their pattern does not "
        f"mean; the pattern counts, and what is none selects nothing: "
        f"{named(list(map(str, wrong)))}.",
        right="Every subscription has a pattern that means its topic.",
        severity="error",
        value=[str(row) for row in wrong],
        way_out="Delete them, and declare with @subscribe what was meant.",
    )


def _is_sound(row: SubscriptionRow) -> bool:
    try:
        meant = Pattern.parse(row.pattern)
    except TopicError:
        return False
    return row.topic == meant.topic and row.regex in (None, meant.regex)


# Captures -----------------------------------------------------------------------------


def captures(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Does every trigger fire that migrations made, and find its columns?"""
    installed = find_captures(cursor)
    silent = [
        f"{each} (no trigger of {act})" for each in installed for act in each.missing_on
    ]
    silent += [
        f"{each} (its trigger of {act} is disabled)"
        for each in installed
        for act in sorted(each.disabled_on)
    ]
    there = {(each.table, each.capture.name) for each in installed}
    silent += [
        f"{table} to {topic} (no trigger at all)"
        for table, topic in _declared()
        if (table, topic) not in there
    ]
    yield finding(
        check="captures",
        wrong=silent,
        what=f"Changes are not captured, though migrations say so: {named(silent)}.",
        right="Every capture has its triggers, which fire.",
        severity="error",
        value=silent,
        way_out="Run manage.py migrate; or ALTER TABLE … ENABLE TRIGGER …; one that "
        "was dropped is made again by a migration with the same CaptureChanges(). What "
        "was written meanwhile is not published.",
    )
    gone = [
        f"{each}: {', '.join(each.gone_columns)}"
        for each in installed
        if each.gone_columns
    ]
    yield finding(
        check="captured_columns",
        wrong=gone,
        what=f"Captures name columns that their tables do not have: {named(gone)}.",
        right="Every column that a capture names is there.",
        value=gone,
        way_out="Say in a migration what is captured now, with a CaptureChanges() of "
        "the same topic.",
    )


def _declared() -> Iterator[tuple[str, str]]:
    """Yield the table and the topic of what migrations capture."""
    for label, found in declared_captures().items():
        try:
            table = apps.get_model(label)._meta.db_table
        except LookupError:
            continue  # Of a model that is no more in the code.
        for topic in found:
            yield table, topic


EXAMINATIONS = (topics, groups, subscriptions, captures)
