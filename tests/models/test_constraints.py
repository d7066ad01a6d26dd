"""What the tables accept from psql, a trigger or another language, and what not."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest
from psycopg.types.json import Jsonb

from django_pgqueue.models import Job
from tests.harness.factories import make_archived_job, make_dead_letter
from tests.harness.notices import heard_until_now

pytestmark = pytest.mark.django_db(databases=["default", "queue"])

UNREADABLE_TIMES = [
    "infinity",
    "-infinity",
    "10001-01-01",
    "9999-01-01",
    "1899-12-31",
    "0044-03-15 BC",
]
TIME_COLUMNS = [
    "visible_at",
    "run_after",
    "enqueued_at",
    "expires_at",
    "leased_at",
    "cancel_requested_at",
]

# Columns as SQL text, and the constraint that refuses them.
REFUSED_ROWS = [
    ({"attempt": "-1"}, "pgqueue_job_attempt_counts"),
    ({"attempt": "1"}, "pgqueue_job_attempt_counts"),  # deliveries is 0.
    ({"attempt": "3", "deliveries": "2"}, "pgqueue_job_attempt_counts"),
    ({"deliveries": "-1"}, "pgqueue_job_attempt_counts"),
    ({"max_attempts": "0"}, "pgqueue_job_attempt_counts"),
    ({"crashes": "-1"}, "pgqueue_job_attempt_counts"),
    (
        {"leased_by": "'w'", "visible_at": "NULL"},
        "pgqueue_job_leased_is_not_parked",
    ),
    ({"leased_by": "'w'", "lane": "'a'"}, "pgqueue_job_leased_is_not_parked"),
    ({"task": "''"}, "pgqueue_job_names_are_not_empty"),
    ({"queue": "''"}, "pgqueue_job_names_are_not_empty"),
    ({"priority": "101"}, "pgqueue_job_priority_range"),
    ({"priority": "-101"}, "pgqueue_job_priority_range"),
    ({"lane": "'a'", "lane_capacity": "0"}, "pgqueue_job_lane_has_capacity"),
    ({"args": "'null'"}, "pgqueue_job_payload_shapes"),
    ({"args": "'{}'"}, "pgqueue_job_payload_shapes"),
    ({"args": "'\"x\"'"}, "pgqueue_job_payload_shapes"),
    ({"args": "'1'"}, "pgqueue_job_payload_shapes"),
    ({"kwargs": "'[]'"}, "pgqueue_job_payload_shapes"),
    ({"kwargs": "'null'"}, "pgqueue_job_payload_shapes"),
    ({"headers": "'[]'"}, "pgqueue_job_payload_shapes"),
    ({"errors": "'{}'"}, "pgqueue_job_payload_shapes"),
]


def insert(cursor, **columns):
    """Insert a job from columns as SQL text; return its id."""
    columns = {"task": "'x'", **columns}
    cursor.execute(
        f"INSERT INTO pgqueue_job ({', '.join(columns)}) "
        f"VALUES ({', '.join(columns.values())}) RETURNING id"
    )
    return cursor.fetchone()[0]


# What is refused ---------------------------------------------------------------------


@pytest.mark.parametrize("time", UNREADABLE_TIMES)
@pytest.mark.parametrize("column", TIME_COLUMNS)
def test_a_time_that_python_cannot_read_is_refused(cursor, column, time):
    """No time column of a job takes infinity, years beyond 9998, or before 1900."""
    with pytest.raises(psycopg.errors.CheckViolation) as refusal:
        insert(cursor, **{column: f"'{time}'"})

    assert "pgqueue_job_times_are_readable" == refusal.value.diag.constraint_name


@pytest.mark.parametrize("columns,constraint", REFUSED_ROWS, ids=str)
def test_a_row_that_a_worker_could_not_run_is_refused(cursor, columns, constraint):
    """The constraint that is named for the rule refuses the row."""
    with pytest.raises(psycopg.errors.CheckViolation) as refusal:
        insert(cursor, **columns)

    assert constraint == refusal.value.diag.constraint_name


def test_an_update_is_checked_like_an_insert(cursor):
    """A row cannot become unreadable later."""
    job_id = insert(cursor)

    with pytest.raises(psycopg.errors.CheckViolation):
        cursor.execute(
            "UPDATE pgqueue_job SET visible_at = 'infinity' WHERE id = %s", [job_id]
        )


def test_a_refusal_tells_the_value_the_limit_and_the_way_out(cursor):
    """And the table, for those that sort errors by it; but nothing of the arguments."""
    with pytest.raises(psycopg.errors.CheckViolation) as refusal:
        insert(cursor, args="'[\"secret\"]'", priority="101")

    told = refusal.value.diag
    assert (
        "pgqueue_job refuses priority 101: it is from -100 to 100"
        " (pgqueue_job_priority_range)."
    ) == told.message_primary
    assert "Higher goes first; 0 is the default." == told.message_hint
    assert "pgqueue_job" == told.table_name
    assert "secret" not in str(refusal.value)


# What is accepted --------------------------------------------------------------------


def test_a_plain_insert_of_a_task_is_a_whole_job(cursor):
    """Every other column has a default: due now, priority 0, 5 attempts, no args."""
    cursor.execute("SELECT clock_timestamp()")
    (before,) = cursor.fetchone()
    cursor.execute("INSERT INTO pgqueue_job (task) VALUES ('x') RETURNING *")
    row = dict(
        zip(
            (column.name for column in cursor.description),
            cursor.fetchone(),
            strict=True,
        )
    )
    cursor.execute("SELECT clock_timestamp()")
    (after,) = cursor.fetchone()

    assert row.pop("id") > 0
    assert before <= row.pop("visible_at") <= after
    assert before <= row.pop("enqueued_at") <= after
    filled = {name: value for name, value in row.items() if value is not None}
    assert {
        "queue": "default",
        "task": "x",
        "args": [],
        "kwargs": {},
        "headers": {},
        "priority": 0,
        "attempt": 0,
        "max_attempts": 5,
        "crashes": 0,
        "deliveries": 0,
        "errors": [],
        "runs_alone": False,
    } == filled


# Dedup keys --------------------------------------------------------------------------


def test_a_dedup_key_is_free_again_once_its_job_has_ended(cursor):
    """Archived jobs and dead letters hold no key, and jobs without one never meet."""
    make_archived_job(dedup_key="k")
    make_archived_job(dedup_key="k")
    make_dead_letter(dedup_key="k")

    assert insert(cursor, dedup_key="'k'")
    assert insert(cursor) != insert(cursor)


# Functions for other languages -------------------------------------------------------


def test_pgqueue_enqueue_stores_what_it_is_given(cursor):
    """Each argument lands in the column of its name."""
    run_after = datetime(2050, 1, 2, 3, 4, 5, tzinfo=UTC)
    expires_at = datetime(2051, 1, 2, 3, 4, 5, tzinfo=UTC)
    cursor.execute(
        """
        SELECT pgqueue_enqueue(task => 'shop.tasks.send', args => %s, kwargs => %s,
            queue => 'mail', priority => 7, run_after => %s, expires_at => %s,
            max_attempts => 3, dedup_key => 'k', headers => %s)
        """,
        [Jsonb([1]), Jsonb({"a": 2}), run_after, expires_at, Jsonb({"trace": "t"})],
    )
    (job_id,) = cursor.fetchone()
    job = Job.objects.get(pk=job_id)

    assert ("shop.tasks.send", [1], {"a": 2}) == (job.task, job.args, job.kwargs)
    assert ("mail", 7, 3, "k") == (
        job.queue,
        job.priority,
        job.max_attempts,
        job.dedup_key,
    )
    assert (run_after, run_after) == (job.run_after, job.visible_at)
    assert (expires_at, {"trace": "t"}) == (job.expires_at, job.headers)


def test_pgqueue_enqueue_puts_a_job_into_a_lane(cursor, other_cursor):
    """It is parked there, and whoever lets it through is told at the commit."""
    other_cursor.execute("SELECT pgqueue_channel()")
    (channel,) = other_cursor.fetchone()
    other_cursor.execute(f'LISTEN "{channel}"')
    cursor.execute(
        "SELECT pgqueue_enqueue('x', lane => 'a', lane_capacity => 3,"
        " lane_spacing => 0.5, lane_burst => 2, queue => 'mail',"
        " headers => '{\"t\": 1}')"
    )
    job = Job.objects.get(pk=cursor.fetchone()[0])

    assert ("a", 3, 0.5, 2, None) == (
        job.lane, job.lane_capacity, job.lane_spacing, job.lane_burst, job.visible_at
    )  # fmt: skip
    assert ("mail", {"t": 1}, 5) == (job.queue, job.headers, job.max_attempts)
    assert ["!lanes"] == heard_until_now(other_cursor.connection, channel)


def test_pgqueue_enqueue_wakes_the_workers_at_the_commit(cursor, other_cursor):
    """A listener hears the queue's name after the commit, and not before."""
    other_cursor.execute("SELECT pgqueue_channel()")
    (channel,) = other_cursor.fetchone()
    other_cursor.execute(f'LISTEN "{channel}"')

    with cursor.connection.transaction():
        cursor.execute("SELECT pgqueue_enqueue('x', queue => 'mail')")
        before = heard_until_now(other_cursor.connection, channel)
    after = heard_until_now(other_cursor.connection, channel)

    assert ([], ["mail"]) == (before, after)


def test_each_installation_has_an_id_of_its_own(cursor, new_cursor):
    """Two databases never produce the same idempotency key; one always the same."""
    ids = []
    for asked in (cursor, new_cursor(), new_cursor("queue")):
        asked.execute("SELECT pgqueue_installation()")
        ids.append(asked.fetchone()[0])

    assert ids[0] == ids[1]
    assert ids[0] != ids[2]
