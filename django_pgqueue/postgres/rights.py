"""
Rights: whether the role can use all tables, make the days to come, and remove old ones.

A role that does not own the tables has what it was granted. It can write rows for as
long as there is a partition for the day, which hides for a week what it lacks; and a
table that an upgrade has made is closed to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from django_pgqueue.postgres.cursor import Cursor, one_row

# What makes and closes days runs as its owner, as sql/make_day.sql says.
FUNCTIONS = (
    "pgqueue_make_archive_day(date)",
    "pgqueue_make_log_day(date)",
    "pgqueue_close_log_day(date)",
)

# Whom the tables belong to; whether the role is, or inherits from, the owner of both;
# and which functions it cannot use, or which run as somebody who does not own the
# tables; and which tables it cannot read and write. Locks: none beyond ACCESS SHARE on
# catalogues.
RIGHTS = """
WITH parent AS MATERIALIZED (
    SELECT relowner FROM pg_class
     WHERE oid IN ('pgqueue_archived_job'::regclass, 'pgqueue_message'::regclass)
)
SELECT quote_ident(current_user),
       (SELECT string_agg(DISTINCT quote_ident(pg_get_userbyid(relowner)), ', ')
          FROM parent),
       (SELECT bool_and(pg_has_role(relowner, 'USAGE')) FROM parent),
       ARRAY(SELECT f.oid::regprocedure::text
               FROM unnest(%(functions)s::text[]) WITH ORDINALITY AS given(name, place)
               JOIN pg_proc f ON f.oid = given.name::regprocedure
              WHERE NOT has_function_privilege(f.oid, 'EXECUTE')
                 OR EXISTS (SELECT FROM parent
                             WHERE NOT pg_has_role(f.proowner, relowner, 'USAGE'))
              ORDER BY given.place),
       ARRAY(SELECT c.oid::regclass::text FROM pg_class c
              WHERE c.relnamespace = (SELECT relnamespace FROM pg_class
                                       WHERE oid = 'pgqueue_job'::regclass)
                AND c.relkind IN ('r', 'p') AND NOT c.relispartition
                AND c.relname LIKE 'pgqueue\\_%%'
                AND EXISTS (SELECT FROM unnest(%(acts)s::text[]) act
                             WHERE NOT has_table_privilege(c.oid, act))
              ORDER BY c.relname)
"""

# What workers do with rows.
ACTS = ("SELECT", "INSERT", "UPDATE", "DELETE")


@dataclass(frozen=True, slots=True)
class Rights:
    """What a role can do with the tables, and with days of the archive and the log."""

    role: str
    # Whose the tables are.
    owner: str
    # Whether it can detach and drop.
    owns: bool
    # The functions that it cannot make and close days with; none: all are granted.
    lacks: tuple[str, ...]
    # The tables that it cannot read and write; none: all are granted.
    closed: tuple[str, ...] = ()

    @property
    def makes(self) -> bool:
        """Whether it can make and close days."""
        return not self.lacks

    @property
    def grant(self) -> str:
        """The SQL by which it can."""
        return f"GRANT EXECUTE ON FUNCTION {', '.join(self.lacks)} TO {self.role}"

    @property
    def open(self) -> str:
        """The SQL by which it can read and write all tables."""
        return f"GRANT {', '.join(ACTS)} ON {', '.join(self.closed)} TO {self.role}"

    @property
    def trouble(self) -> str:
        """What it cannot do, and what comes of it; empty: nothing."""
        if self.lacks:
            return (
                f"The role {self.role} does not own the tables and may not make their "
                f"days: when those that are there are over, no job can be settled and "
                f"no message published."
            )
        if self.closed:
            return (
                f"The role {self.role} may not read and write "
                f"{', '.join(self.closed)}: what workers do there fails."
            )
        if not self.owns:
            return (
                f"The role {self.role} does not own the tables: it makes and closes "
                f"their days, and cannot drop them. Where a worker of it leads, "
                f"nothing of the archive and the log is removed."
            )
        return ""

    @property
    def way_out(self) -> str:
        """What to do about it, by the owner; empty: nothing."""
        if self.lacks:
            return f"As {self.owner}: {self.grant}"
        if self.closed:
            return (
                f"As {self.owner}: run roles.sql of this version again, or {self.open}"
            )
        return "" if self.owns else f"As {self.owner}: {self.join}"

    @property
    def join(self) -> str:
        """The SQL by which it can detach and drop, too."""
        return f"GRANT {self.owner} TO {self.role}"


def rights(cursor: Cursor) -> Rights:
    """Return what the role of the session can do."""
    cursor.execute(RIGHTS, {"functions": list(FUNCTIONS), "acts": list(ACTS)})
    role, owner, owns, lacks, closed = one_row(cursor)
    return Rights(role, owner, owns, tuple(lacks), tuple(closed))
