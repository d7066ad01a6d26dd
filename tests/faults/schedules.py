"""
Schedules: what they and their ticks were, kept by a trigger and read at the end.

Every step of a schedule from one last tick to the next is kept as it was committed, so
what was due in it can be reckoned, and compared with the ticks that came of it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from tests.faults.server import Server

INSTALL = """
CREATE TABLE faults_step (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    application text NOT NULL DEFAULT current_setting('application_name'),
    schedule bigint NOT NULL,
    before timestamptz NOT NULL,
    after timestamptz
);

CREATE FUNCTION faults_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO faults_step (schedule, before, after)
    VALUES (NEW.id, coalesce(OLD.last_tick, OLD.ticks_from), NEW.last_tick);
    RETURN NULL;
END $$;

CREATE TRIGGER faults AFTER UPDATE OF last_tick ON pgqueue_schedule
    FOR EACH ROW EXECUTE FUNCTION faults_step();
"""

SCHEDULES = """
SELECT id, name, extract(epoch FROM ticks_from)::float8,
       extract(epoch FROM coalesce(last_tick, ticks_from))::float8,
       catch_up, overlap
  FROM pgqueue_schedule ORDER BY name
"""
TICKS = """
SELECT schedule_id, extract(epoch FROM due_at)::float8,
       extract(epoch FROM ticked_at)::float8, outcome, job_id, missed
  FROM pgqueue_tick ORDER BY schedule_id, due_at
"""
STEPS = """
SELECT schedule, extract(epoch FROM at)::float8, extract(epoch FROM before)::float8,
       extract(epoch FROM after)::float8, application
  FROM faults_step ORDER BY seq
"""

# Whether a tick is still to be issued.
BEHIND = """
SELECT count(*) = 0 OR bool_or(next_tick IS NULL OR next_tick <= clock_timestamp())
  FROM pgqueue_schedule
"""
HOLD = """
UPDATE pgqueue_schedule SET paused_at = clock_timestamp(), revision = revision + 1
"""

BEHIND_SECONDS_MAX = 45.0


class Schedule(NamedTuple):
    """A schedule as it is at the end; times in seconds of the epoch."""

    id: int
    name: str
    ticks_from: float
    last_tick: float
    catch_up: str
    overlap: str


class Tick(NamedTuple):
    """A row of pgqueue_tick."""

    schedule: int
    due_at: float
    ticked_at: float
    outcome: str
    job: int | None
    missed: int


class Step(NamedTuple):
    """One change of a schedule's last tick, by whom."""

    schedule: int
    at: float
    before: float  # The last tick until then, or the moment it was made.
    after: float
    application: str


def hold(server: Server) -> float:
    """Pause all schedules once nothing is due; return when that was."""

    def is_up_to_date() -> bool:
        with server.connect() as connection:
            return connection.execute(BEHIND).fetchone() == (False,)

    wait_for(is_up_to_date, BEHIND_SECONDS_MAX, "every due tick is issued")
    held_at = time.time()
    with server.connect() as connection:
        connection.execute(HOLD)
    return held_at


def read(cursor: Any) -> tuple[list[Schedule], list[Tick], list[Step]]:
    """Return everything about schedules."""
    return (
        [Schedule._make(row) for row in cursor.execute(SCHEDULES).fetchall()],
        [Tick._make(row) for row in cursor.execute(TICKS).fetchall()],
        [Step._make(row) for row in cursor.execute(STEPS).fetchall()],
    )
