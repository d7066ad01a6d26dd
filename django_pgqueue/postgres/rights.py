"""
Rights: whether the role can make the days to come, and remove those that are over.

A role that does not own the tables has what it was granted. It can write rows for as
long as there is a partition for the day, which hides for a week what it lacks.
"""

from __future__ import annotations

from dataclasses import dataclass

from django_pgqueue.postgres.cursor import Cursor, one_row

# What makes and closes days runs as its owner, as sql/make_archive_day.sql says.
FUNCTIONS = (
    "pgqueue_make_archive_day(date)",
    "pgqueue_make_log_day(date)",
    "pgqueue_close_log_day(date)",
)

# Whom the tables belong to; whether the role is, or inherits from, the owner of both;
# and which functions it cannot use, or which run as somebody who does not own the
# tables. Locks: none beyond ACCESS SHARE on catalogues.
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
              ORDER BY given.place)
"""


@dataclass(frozen=True, slots=True)
class Rights:
    """What a role can do with the days of the archive and of the log."""

    role: str
    # Whose the tables are.
    owner: str
    # Whether it can detach and drop.
    owns: bool
    # The functions that it cannot make and close days with; none: all are granted.
    lacks: tuple[str, ...]

    @property
    def makes(self) -> bool:
        """Whether it can make and close days."""
        return not self.lacks

    @property
    def grant(self) -> str:
        """The SQL by which it can."""
        return f"GRANT EXECUTE ON FUNCTION {', '.join(self.lacks)} TO {self.role}"

    @property
    def trouble(self) -> str:
        """What it cannot do, and what comes of it; empty: nothing."""
        if self.lacks:
            return (
                f"The role {self.role} does not own the tables and may not make their "
                f"days: when those that are there are over, no job can be settled and "
                f"no message published."
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
        return "" if self.owns else f"As {self.owner}: {self.join}"

    @property
    def join(self) -> str:
        """The SQL by which it can detach and drop, too."""
        return f"GRANT {self.owner} TO {self.role}"


def rights(cursor: Cursor) -> Rights:
    """Return what the role of the session can do."""
    cursor.execute(RIGHTS, {"functions": list(FUNCTIONS)})
    role, owner, owns, lacks = one_row(cursor)
    return Rights(role, owner, owns, tuple(lacks))
