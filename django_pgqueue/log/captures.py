"""
Captures: triggers that publish each row that a statement has changed.

A capture is of one table and has a name, that of its messages without the last word.
All that it does is said in the arguments of its triggers, and stands nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from django_pgqueue.postgres.cursor import Cursor, value

Act = Literal["insert", "update", "delete"]
ACTS: tuple[Act, ...] = ("insert", "update", "delete")
Wakes = Literal["on_commit", "now"]
WAKES: tuple[Wakes, ...] = ("on_commit", "now")

# With what is before and behind it, the name of a trigger has 63.
NAME_CHARACTERS_MAX = 40

FUNCTION = "pgqueue_capture"

# What a statement of each kind has as rows that it changed.
ROWS = {
    "insert": "NEW TABLE AS pgqueue_new",
    "update": "OLD TABLE AS pgqueue_old NEW TABLE AS pgqueue_new",
    "delete": "OLD TABLE AS pgqueue_old",
}

# Locks: SHARE ROW EXCLUSIVE on the table, until the end of the transaction: it waits
# for writes under way, and others wait meanwhile.
CREATE = """\
CREATE OR REPLACE TRIGGER {name} AFTER {act} ON {table}
    REFERENCING {rows}
    FOR EACH STATEMENT EXECUTE FUNCTION pgqueue_capture({said})"""

# Locks: ACCESS EXCLUSIVE on the table, likewise.
DROP = "DROP TRIGGER {name} ON {table}"

# Refuses a condition that no row could be asked. Locks: ACCESS SHARE on the table.
TRY = "SELECT FROM {table} AS old, {table} AS new WHERE false AND ({when})"

# Locks: none; so have all below.
HAS_FUNCTION = "SELECT to_regproc('pgqueue_capture') IS NOT NULL"

# Each trigger that captures, with what it was told, and the columns of its table.
FIND_ALL = r"""
SELECT c.relname::text, t.tgtype::integer, t.tgenabled::text,
       convert_from(substring(t.tgargs FROM 1 FOR octet_length(t.tgargs) - 1), 'UTF8'),
       ARRAY(SELECT a.attname::text FROM pg_attribute a
              WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
              ORDER BY a.attnum)
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
 WHERE t.tgfoid = to_regproc('pgqueue_capture') AND NOT t.tgisinternal
   AND t.tgparentid = 0
 ORDER BY 1, t.tgname
"""

# Locks: none. Ends with the transaction, and goes back with a savepoint.
SET_ACTOR = "SELECT set_config('pgqueue.actor', %(actor)s, true)"

# The code of the NOTICE by which a trigger says whom to wake.
PUBLISHED = "PQ001"

# Bits of pg_trigger.tgtype.
TYPES: dict[Act, int] = {"insert": 4, "update": 16, "delete": 8}

# Of pg_trigger.tgenabled: always, or unless the session is one of a replica.
FIRES = ("O", "A")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What the triggers of a table are told."""

    # Of its messages, without the last word: "orders.changes".
    name: str
    on: tuple[Act, ...]
    # None: all that the table has when a row is written, but those of `without`.
    columns: tuple[str, ...] | None
    without: tuple[str, ...]
    # SQL about the rows old and new; None: each row.
    when: str | None
    wakes: Wakes
    bytes_max: int

    @property
    def topic(self) -> str:
        """The topic that its messages are published to."""
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Installed:
    """A capture as a table has it."""

    table: str
    capture: Capture
    # Those whose trigger is there, and fires.
    fires_on: frozenset[Act]
    # Those of its triggers that are there, and do not.
    disabled_on: frozenset[Act]
    table_columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.table} to {self.capture.name}"

    @property
    def missing_on(self) -> list[Act]:
        """What it is told to capture, and has no trigger for."""
        there = self.fires_on | self.disabled_on
        return [act for act in self.capture.on if act not in there]

    @property
    def gone_columns(self) -> list[str]:
        """Columns that it is told, and that the table does not have."""
        told = self.capture.columns or ()
        return [name for name in told if name not in self.table_columns]

    @property
    def captured_columns(self) -> list[str]:
        """The columns that are in its messages."""
        told, without = self.capture.columns, self.capture.without
        return [
            name
            for name in self.table_columns
            if (name in told if told is not None else name not in without)
        ]


def replace(
    editor: Any,
    table: str,
    name: str,
    *,
    before: Sequence[Act],
    capture: Capture | None,
) -> None:
    """
    Give a table a capture, in place of the one before.

    Args:
        editor: Django's schema editor, which runs the statements, or shows them.
        table: Its name.
        name: Of the capture.
        before: What is captured under this name so far.
        capture: What it has from then on; None: nothing.
    """
    for statement in _statements(editor, table, name, before, capture):
        editor.execute(statement, params=None)


def _statements(
    editor: Any, table: str, name: str, before: Sequence[Act], capture: Capture | None
) -> Iterator[str]:
    quoted = editor.quote_name(table)
    if capture is not None and capture.on and capture.when is not None:
        yield TRY.format(table=quoted, when=capture.when)
    for act in ACTS:
        trigger = editor.quote_name(f"pgqueue_capture_{name}_{act}")
        if capture is not None and act in capture.on:
            # In ASCII: it is read as bytes again.
            said = editor.quote_value(json.dumps(asdict(capture)))
            yield CREATE.format(
                name=trigger, act=act.upper(), table=quoted, rows=ROWS[act], said=said
            )
        elif act in before:
            yield DROP.format(name=trigger, table=quoted)


def has_function(cursor: Cursor) -> bool:
    """Whether there is what the triggers call."""
    return bool(value(cursor, HAS_FUNCTION))


def set_actor(cursor: Cursor, actor: str) -> None:
    """Tell the transaction who acts; "": nobody is named."""
    cursor.execute(SET_ACTOR, {"actor": actor})


def find_all(cursor: Cursor) -> list[Installed]:
    """Return what tables have, by their names and those of captures."""
    cursor.execute(FIND_ALL)
    told: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for table, kind, enabled, said, columns in cursor.fetchall():
        capture = json.loads(said)
        told.setdefault((table, capture["name"]), []).append(
            (kind, enabled, capture, columns)
        )
    return [_installed(table, rows) for (table, _), rows in sorted(told.items())]


def _installed(table: str, rows: list[tuple[Any, ...]]) -> Installed:
    fires: set[Act] = set()
    disabled: set[Act] = set()
    for kind, enabled, _, _ in rows:
        (act,) = (name for name, bit in TYPES.items() if kind & bit)
        (fires if enabled in FIRES else disabled).add(act)
    *_, said, columns = rows[0]
    for name in ("on", "columns", "without"):
        said[name] = None if said[name] is None else tuple(said[name])
    return Installed(
        table,
        Capture(**said),
        frozenset(fires),
        frozenset(disabled),
        tuple(columns),
    )
