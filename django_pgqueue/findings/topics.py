"""Topics: days of the log, retention, groups, subscriptions, captures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.apps import apps

from django_pgqueue.exceptions import TopicError
from django_pgqueue.findings.look import Look, messages_each
from django_pgqueue.findings.registry import (
    Finding,
    Findings,
    finding,
    listing,
    verdict,
)
from django_pgqueue.log import backlogs as stored_backlogs
from django_pgqueue.log import doctor, retain_backfills
from django_pgqueue.log.captures import find_all as find_captures
from django_pgqueue.log.closed_days import closed_days
from django_pgqueue.log.days import closed_early, first_open, reopen_sql
from django_pgqueue.log.groups import GroupRow
from django_pgqueue.log.lag import PUBLISHING_SECONDS_MAX, holders, lags
from django_pgqueue.log.names import Pattern
from django_pgqueue.log.subscriptions import STALE_AFTER, SubscriptionRow
from django_pgqueue.operations import declared_captures
from django_pgqueue.operators.human import (
    age,
    duration,
    named,
    plural,
    share,
    shown,
    size,
)
from django_pgqueue.operators.states import has_reader, oldest
from django_pgqueue.operators.workers import START_FOR
from django_pgqueue.postgres.day_tables import DAYS_AHEAD_OF_LEADER as AHEAD
from django_pgqueue.postgres.day_tables import LOG, today
from django_pgqueue.tasks import registry
from django_pgqueue.topics.consume import declared

# A group whose oldest unread message has outlived so much of its retention.
RETENTION_SHARE_MAX = 0.8

AHEAD_LEAST = 2

# A day that is over is closed by the leader, two hours later.
CLOSED_LATE = timedelta(hours=3)

# So long groups may take to read the former partitions of a topic.
FORMER_SECONDS_MAX = 3_600.0

# A loss is reported for so long.
LOST_LATELY = timedelta(days=7)

# What a subscription does that is full; None: its code says no bound any more.
DOES = {
    "pause": "its messages stay in the log",
    "drop_oldest": "its oldest jobs are cancelled",
    "refuse": "its messages are refused",
    None: "it is let go",
}


# Days of the log ----------------------------------------------------------------------


@finding("log_days")
def log_days(look: Look) -> Findings:
    """Are the log's tables of the next days there?"""
    now = today(look.cursor)
    ahead = sum(1 for day in LOG.attached(look.cursor) if day > now)
    yield verdict(
        ahead < AHEAD_LEAST,
        f"The log has tables for {ahead} days ahead, of {AHEAD}.",
        "A running worker makes them within a minute; without them, the first message "
        "of a day waits for its table.",
        value=ahead,
        limit=AHEAD_LEAST,
    )


@listing(
    "log_closed",
    wrong="Days of the log that are over are not closed: {}.",
    right="Every day of the log that is over is closed.",
    way_out="The worker that leads closes them, unless a transaction that has used "
    "their tables stays open: see log_horizon and prepared. Until then they are read "
    "by every reader, and retention removes none of them.",
    limit=CLOSED_LATE.total_seconds(),
)
def log_closed(look: Look) -> Iterator[str]:
    """Is every day closed that has been over for CLOSED_LATE?"""
    known = dict(closed_days(look.cursor).closed)
    over = first_open(look.cursor, CLOSED_LATE)
    days = LOG.attached(look.cursor)
    return (str(day) for day in days if day < over and day not in known)


@finding("log_early", id="W017")
def log_early(look: Look) -> Findings:
    """Is a day closed that is not over?"""
    early = closed_early(look.cursor)
    days = [str(day) for day in early]
    yield verdict(
        early,
        f"Days of the log are closed and not over: {named(days)}. The clock of "
        f"database {look.settings.database!r} was ahead; what is published into them "
        f"is refused.",
        f"Set its clock right. Then run: {reopen_sql(early)}",
        right="No day of the log is closed before it is over.",
        severity="error",
        value=days,
    )


@finding("log_horizon")
def log_horizon(look: Look) -> Findings:
    """Does a transaction that publishes hold readers back?"""
    most = PUBLISHING_SECONDS_MAX
    found = [each for each in holders(look.cursor) if each.is_longer(most)]
    if not found:
        text = "No transaction that publishes holds readers back."
        yield Finding(what=text, value=0.0, limit=most)
        return
    first, others = found[0], len(found) - 1
    topics = look.rows(doctor.NAMES, topics=[first.topic_id])
    if first.seconds is None:
        who, since, way_out = "A prepared transaction", "", first.ended_by
    else:
        name = shown(first.application_name or "a session")
        who = f"{name}, process {first.pid}, {first.state or '?'},"
        since = f" for {age(first.seconds)}"
        way_out = f"Commit sooner; or {first.ended_by}."
    yield verdict(
        True,
        f"{who} has published to {topics[0].name if topics else '?'} and holds its "
        f"readers back{since}"
        + (f"; {others} more hold readers back." if others else "."),
        way_out,
        value=first.seconds,
        limit=most,
    )


@listing(
    "log_bytes",
    wrong="Days of the log that cannot go yet have more bytes than may be kept: {}.",
    right="The log has no more bytes than it may have.",
    way_out="Whole days go, two hours after their end: keep more, by topic(…, "
    "retain_bytes=…) or RETENTION['log_bytes'], or publish less.",
)
def log_bytes(look: Look) -> Iterator[tuple[str, str]]:
    """Does the log of a topic, or of all, have more bytes than it may?"""
    _firsts, full = _bounds(look)
    for each in full:
        whose = each.topic or "the log of all topics"
        has = f"{size(each.bytes)} of {size(each.bytes_max)}"
        yield each.topic or "*", f"{whose} has {has}"


def _bounds(look: Look) -> Any:
    most = look.settings.retention.log_bytes
    return doctor.bounds(look.cursor, bytes_max=most, share=RETENTION_SHARE_MAX)


@finding("log_ingest")
def log_ingest(look: Look) -> Findings:
    """Does retention wait for the pipeline job ingest, or has it waited too long?"""
    kept = look.settings.retention
    rows = look.rows(doctor.UNINGESTED, default=kept.log, wait=kept.wait_for_ingest)
    lost = [row for row in rows if row.is_lost]
    texts = [f"{row.name} has lost some" for row in lost] + [
        f"{row.name} waits for {age(row.seconds)} of {age(row.wait_seconds)}"
        for row in rows
        if row.seconds is not None and row.seconds > 0
    ]
    yield verdict(
        texts,
        "Messages are old enough to go, and the pipeline job ingest has not read "
        f"them: {named(texts)}.",
        "manage.py pgqueue_pipeline run ingest; what is lost is passed over with -o "
        "on_data_loss=continue. Or topic(…, wait_for_ingest=0).",
        right="The pipeline job ingest has read what goes.",
        severity="error" if lost else "warning",
        value=[row.name for row in rows],
    )


# Partitions ---------------------------------------------------------------------------


@listing(
    "topics",
    wrong="Topics have other partitions than code declares: {}.",
    right="Every topic has the partitions that code declares.",
    way_out="What a topic has stays until somebody says otherwise: manage.py pgqueue "
    "repartition TOPIC PARTITIONS; or write what it has into topic(…, partitions=…).",
)
def topics(look: Look) -> Iterator[tuple[str, str]]:
    """Does every topic have the partitions that code declares?"""
    for row in look.rows(doctor.OTHER_PARTITIONS):
        has = f"{row.name} has {row.partitions}, code says {row.declared}"
        yield row.name, has


@listing(
    "topics_former",
    wrong="Topics still have former partitions: {}.",
    right="No topic has former partitions that should have been read by now.",
    way_out="They are read beside the new ones, by id, which costs these groups some "
    "looks for each batch. Resume these groups, read halted partitions on, or forget a "
    "group; and end transactions that are older than the change.",
    limit=FORMER_SECONDS_MAX,
)
def topics_former(look: Look) -> Iterator[tuple[str, str]]:
    """Are former partitions done with, an hour after their count was changed?"""
    for row in look.rows(doctor.FORMER, seconds=FORMER_SECONDS_MAX):
        why = ", ".join(f"{row.name}/{group}" for group in row.groups or ())
        why = why or "a transaction is older than the change"
        yield row.name, f"{row.name}, since {age(row.seconds)} ({why})"


# Groups -------------------------------------------------------------------------------


@listing(
    "groups_behind",
    wrong="Groups are about to lose messages: {}.",
    right="No group is about to lose messages that it has not read.",
    way_out="Start more readers, resume it, or keep its topic's messages for longer: "
    "topic(…, retain=…, retain_bytes=…).",
    limit=RETENTION_SHARE_MAX,
)
def groups_behind(look: Look) -> Iterator[tuple[str, str]]:
    """Is retention about to remove messages that a group has not read?"""
    firsts, _full = _bounds(look)
    for row in look.rows(
        doctor.BEHIND,
        default=look.settings.retention.log,
        share=RETENTION_SHARE_MAX,
        topics=list(firsts),
        firsts=list(firsts.values()),
    ):
        kept = f"for {duration(row.keep_seconds)}"
        if row.is_large or row.keep_seconds is None:
            kept = "until its bound of bytes is reached"
        name = f"{row.topic}/{row.name}"
        unread = f"its oldest unread message is {age(row.seconds)} old"
        yield name, f"{name} ({unread}, kept {kept})"


@finding("groups_halted", part="groups")
def groups_halted(look: Look) -> Findings:
    """Are there positions that nobody reads on from?"""
    rows = look.rows(doctor.HALTED)
    texts = [
        f"{row.topic}/{row.name}, {plural(row.partitions, 'partition')}, for "
        f"{row.halted_for}, since {age(row.seconds)}"
        for row in rows
    ]
    messages = [row.message for row in rows if row.message and not look.is_bounded]
    first = shown(messages[0]) if messages else ""
    yield verdict(
        rows,
        f"Groups are halted: {named(texts)}. {first}".strip(),
        "After an error: fix it, then manage.py pgqueue groups read-on. After "
        "retention: manage.py pgqueue seek, to 'earliest' for what is left.",
        right="No group is halted.",
        severity="error",
        value=[f"{row.topic}/{row.name}" for row in rows],
    )


@finding("groups_unserved", part="groups")
def groups_unserved(look: Look) -> Findings:
    """Does a living worker read for every group that has messages to read?"""
    stale = _stale_groups(look)
    # More workers do not help a group that has no code.
    rows = [
        row
        for row in look.groups_shown
        if row.paused_at is None
        and row not in stale
        and not has_reader(row, look.plans)
    ]
    limit = messages_each(len(rows))
    found = lags(look.cursor, [row.id for row in rows], limit=limit) if rows else {}
    is_found = False
    for row in rows:
        waiting = [each for each in found[row.id] if each.state == "waiting"]
        if not waiting:
            continue
        is_found = True
        unread = sum(each.unread for each in waiting)
        more = " or more" if any(each.unread >= limit for each in waiting) else ""
        yield verdict(
            True,
            f"Group {shown(row)} has {unread:,}{more} unread "
            f"message{'' if unread == 1 else 's'}, the oldest for "
            f"{age(oldest(waiting) or 0.0)}, and no living worker serves its queue "
            f"{shown(row.queue)}.",
            f"{START_FOR}{shown(row.queue)}",
            severity="error",
            value=unread,
            limit=0,
        )
    if not is_found:
        text = (
            "Every group that has messages to read has a living worker, or is paused."
        )
        yield Finding(what=text)


def _stale_groups(look: Look) -> Sequence[GroupRow]:
    """Return groups that code has not declared lately, nor that of this process."""
    here = {(each.topic, each.group) for each in declared()}
    return [r for r in look.groups if r.is_stale and (r.topic, r.name) not in here]


@listing(
    "groups_stale",
    wrong=f"Groups were not declared for {STALE_AFTER.days} days, and nobody reads for "
    "them: {}.",
    right="Every group is declared.",
    way_out="Unless their code comes back: manage.py pgqueue groups pause TOPIC/GROUP, "
    "then manage.py pgqueue groups forget TOPIC/GROUP",
    limit=STALE_AFTER.total_seconds(),
)
def groups_stale(look: Look) -> Iterator[str]:
    """Does code declare every group still?"""
    return map(str, _stale_groups(look))


# Subscriptions ------------------------------------------------------------------------


@listing(
    "stale",
    wrong=f"Subscriptions were not declared for {STALE_AFTER.days} days, and still "
    "make a job of each message: {}.",
    right="Every subscription of code is declared.",
    way_out="Disable or delete them in the admin, unless their code comes back.",
    limit=STALE_AFTER.total_seconds(),
)
def stale_subscriptions(look: Look) -> Iterator[str]:
    """Does code declare every subscription still?"""
    return (str(row) for row in look.subscriptions if row.is_stale)


@listing(
    "subscribed_tasks",
    wrong="Subscriptions have a task that is not declared here: {}.",
    right="The task of every subscription is declared.",
    way_out="Deploy the code that has it, or disable them; their jobs wait, and then "
    "are dead.",
)
def subscribed_tasks(look: Look) -> Iterator[str]:
    """Is the task of every subscription declared?"""
    for row in look.subscriptions:
        is_live = row.disabled_at is None and not row.is_stale
        if is_live and row.task not in registry.tasks:
            yield str(row)


@listing(
    "patterns",
    wrong="Subscriptions have a topic or an expression that their pattern does not "
    "mean; the pattern counts, and what is none selects nothing: {}.",
    right="Every subscription has a pattern that means its topic.",
    way_out="Delete them, and declare with @subscribe what was meant.",
    severity="error",
)
def patterns(look: Look) -> Iterator[str]:
    """Does every subscription have a pattern that means its topic?"""
    for row in look.subscriptions:
        if row.disabled_at is None and not _is_sound(row):
            yield str(row)


def _is_sound(row: SubscriptionRow) -> bool:
    try:
        meant = Pattern.parse(row.pattern)
    except TopicError:
        return False
    return row.topic == meant.topic and row.regex in (None, meant.regex)


@listing(
    "backlogs",
    wrong="Subscriptions have as many jobs as may wait: {}.",
    right="Every subscription with a backlog has room.",
    way_out="Run more workers for their queues, or allow more: @subscribe(…, "
    "backlog=…). What stays in the log goes with its retention.",
)
def backlogs(look: Look) -> Iterator[tuple[str, str]]:
    """Does every subscription with a backlog have room?"""
    for row in look.rows(stored_backlogs.FULL):
        name = f"{row.pattern} → {row.queue}"
        taken = share(row.backlog or 0, row.backlog_max or 0)
        does = DOES[row.backlog_on_full]
        yield name, f"{name} ({taken}, {does}, for {age(row.seconds)})"


@listing(
    "backfills_behind",
    wrong="Back-fills are about to lose messages: {}.",
    right="No back-fill is about to lose messages that have no job yet.",
    way_out="Enable the subscription, delete it, or keep its topic's messages for "
    "longer: topic(…, retain=…).",
    limit=RETENTION_SHARE_MAX,
)
def backfills_behind(look: Look) -> Iterator[tuple[str, str]]:
    """Is retention about to remove messages that a back-fill has no job for yet?"""
    for row in look.rows(
        retain_backfills.BEHIND,
        default=look.settings.retention.log,
        share=RETENTION_SHARE_MAX,
    ):
        name = f"{row.pattern} → {row.queue}"
        state = " (disabled)" if row.is_disabled else ""
        kept = f"{age(row.seconds)} old, kept for {duration(row.keep_seconds)}"
        yield name, f"{name}{state}: a message of {row.topic} is {kept}"


@listing(
    "backfills_lost",
    wrong=f"Back-fills lost messages in the last {LOST_LATELY.days} days. {{}}",
    right=f"No back-fill lost messages in the last {LOST_LATELY.days} days.",
    way_out=f"They are gone, and have no job. It is told for {LOST_LATELY.days} days.",
)
def backfills_lost(look: Look) -> Iterator[tuple[str, str]]:
    """Has retention removed messages that a back-fill had no job for?"""
    for row in look.rows(retain_backfills.LOST_LATELY, period=LOST_LATELY):
        name = f"{row.pattern} → {row.queue}"
        yield name, f"{name}: {row.message}"


# Captures -----------------------------------------------------------------------------


@listing(
    "captures",
    wrong="Changes are not captured, though migrations say so: {}.",
    right="Every capture has its triggers, which fire.",
    way_out="Run manage.py migrate; or ALTER TABLE … ENABLE TRIGGER …; one that was "
    "dropped is made again by a migration with the same CaptureChanges(). What was "
    "written meanwhile is not published.",
    severity="error",
)
def captures(look: Look) -> Iterator[str]:
    """Does every trigger fire that migrations made?"""
    installed = find_captures(look.cursor)
    for each in installed:
        yield from (f"{each} (no trigger of {act})" for act in each.missing_on)
    for each in installed:
        for act in sorted(each.disabled_on):
            yield f"{each} (its trigger of {act} is disabled)"
    there = {(each.table, each.capture.name) for each in installed}
    for label, found in declared_captures().items():
        try:
            table = apps.get_model(label)._meta.db_table
        except LookupError:
            continue  # Of a model that is no more in the code.
        for topic in found:
            if (table, topic) not in there:
                yield f"{table} to {topic} (no trigger at all)"


@listing(
    "captured_columns",
    id="W029",
    wrong="Captures name columns that their tables do not have: {}. Messages lack "
    "them, and an update of the others alone is told.",
    right="Every column that a capture names is there.",
    way_out="Say in a migration what is captured now, with a CaptureChanges() of the "
    "same topic.",
)
def captured_columns(look: Look) -> Iterator[str]:
    """Is every column there that a capture names?"""
    for each in find_captures(look.cursor):
        if each.gone_columns:
            yield f"{each}: {', '.join(each.gone_columns)}"
