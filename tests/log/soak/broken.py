"""
Broken: the functions of the log without one of their protections.

The soak must find each of them out, or it would find nothing. What is changed is told
by the text that stands there; where that has moved on, the change says so. A pause
makes the moment long that a protection is about.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

HORIZONS = "pgqueue_horizons"
BEGIN = "pgqueue_begin_publish"
STORE = "pgqueue_store_messages"
ONE = "pgqueue_store_message"

READ_HIGHEST = """\
    highest := coalesce(pg_sequence_last_value('pgqueue_message_id_seq'), 0);
"""
PAUSE = "    PERFORM pg_sleep(0.005);\n"
REMEMBER = "        is_held := set_config"

HIGHEST_AND_HELD = "    highest bigint;\n    held_by text[];\n"
LOCKS_NOW = """\
    held_by := ARRAY(SELECT p.virtualtransaction || p.classid || '/' || p.objid
                       FROM pg_locks p WHERE p.locktype = 'advisory');
"""
ANY_LOCK = "AND (l.locktype = 'advisory'"
HELD_THEN = """\
AND (l.virtualtransaction || l.classid || '/' || l.objid = ANY (held_by)
                    AND l.locktype = 'advisory'"""
DRAW = """\
    drawn := ARRAY(SELECT nextval('pgqueue_message_id_seq')
                     FROM jsonb_array_elements(items));
"""
DRAW_ONE = "drawn_id bigint := nextval('pgqueue_message_id_seq');\n"

FUNCTION = "SELECT pg_get_functiondef(%s::regproc)"

NEAR_THE_WRAP = 2**32 - 150


@dataclass(frozen=True, slots=True)
class Change:
    """What stands in some functions instead: (function, old, new)."""

    title: str
    edits: tuple[tuple[str, str, str], ...]
    start: int = 0  # Of the ids.


# What only makes the moments long in which something could go wrong: nothing may.
STRETCHED = Change(
    "time passes between the steps of a reader and of a publisher",
    (
        (HORIZONS, READ_HIGHEST, READ_HIGHEST + PAUSE),
        (BEGIN, REMEMBER, PAUSE + REMEMBER),
        (ONE, REMEMBER, PAUSE + REMEMBER),
    ),
)

BROKEN: dict[str, Change] = {
    "no-locks": Change(
        "the horizon is the highest id",
        ((HORIZONS, "held.behind < 2147483648", "false"),),
    ),
    "locks-first": Change(
        "the locks are read before the highest id",
        (
            (HORIZONS, "    highest bigint;\n", HIGHEST_AND_HELD),
            (HORIZONS, READ_HIGHEST, LOCKS_NOW + PAUSE + READ_HIGHEST),
            (HORIZONS, ANY_LOCK, HELD_THEN),
        ),
    ),
    "lock-late": Change(
        "the lock is taken when the ids are drawn",
        (
            (
                STORE,
                "    into_topic integer;\n",
                "    into_topic integer; drawn bigint[];\n",
            ),
            (
                STORE,
                "    into_topic := pgqueue",
                DRAW + "    into_topic := pgqueue",
            ),
            (STORE, "(epoch, topic_id, partition", "(id, epoch, topic_id, partition"),
            (
                STORE,
                "SELECT state.epoch, into_topic",
                "SELECT drawn[item.place], state.epoch, into_topic",
            ),
            (ONE, "    made record;\n", "    made record; " + DRAW_ONE),
            (ONE, "(epoch, topic_id, partition", "(id, epoch, topic_id, partition"),
            (ONE, "VALUES (state.epoch", "VALUES (drawn_id, state.epoch"),
        ),
    ),
    "one-too-far": Change(
        "the horizon is the first id that an open transaction may have drawn",
        ((HORIZONS, "highest - max(held.behind)", "highest - max(held.behind) + 1"),),
    ),
    "remembered": Change(
        "a session takes the lock in its first transaction alone",
        ((BEGIN, "'1', true)", "'1', false)"), (ONE, "'1', true)", "'1', false)")),
    ),
    "no-wrap": Change(
        "a lock's key is compared as if it had all bits of an id",
        (
            (
                HORIZONS,
                "(highest - l.objid::bigint) & 4294967295 AS behind",
                "(highest & 4294967295) - l.objid::bigint AS behind",
            ),
            (HORIZONS, "held.behind < 2147483648", "held.behind >= 0"),
        ),
        start=NEAR_THE_WRAP,
    ),
}


def apply(cursor: Any, change: Change) -> None:
    """
    Change the functions of a scratch database.

    Raises:
        LookupError: A function no longer has the text.
    """
    for function, old, new in change.edits:
        cursor.execute(FUNCTION, [function])
        (text,) = cursor.fetchone()
        if old not in text:
            raise LookupError(
                f"{change.title!r} changes {old!r} in {function}, which is not there."
            )
        cursor.execute(text.replace(old, new))
