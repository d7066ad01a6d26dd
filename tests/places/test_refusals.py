"""What PostgreSQL refuses to the roles of roles.sql."""

from __future__ import annotations

import psycopg
import pytest

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "queue"])

PRODUCER = [
    # It reads nobody's arguments, results or messages.
    "SELECT args FROM pgqueue_job",
    "SELECT kwargs FROM pgqueue_job",
    "UPDATE pgqueue_job SET headers = args",
    "UPDATE pgqueue_job SET attempt = 0 RETURNING args",
    "SELECT args FROM pgqueue_dedup_call",
    "SELECT payload FROM pgqueue_message",
    "SELECT data FROM pgqueue_mail_file",
    "SELECT result FROM pgqueue_archived_job",
    "SELECT errors FROM pgqueue_dead_letter",
    "SELECT name FROM pgqueue_schedule",
    # It claims and settles nothing, and makes no history.
    "UPDATE pgqueue_job SET leased_by = 'me'",
    "UPDATE pgqueue_job SET deliveries = 2",
    "SELECT pgqueue_promote('{}')",
    "SELECT pgqueue_receive('parcels')",
    "SELECT pgqueue_turns('default', '', 0, '', 9, 9, 9, '{}')",
    "INSERT INTO pgqueue_archived_job (id) VALUES (1)",
    "DELETE FROM pgqueue_dead_letter",
    "DELETE FROM pgqueue_message",
    "DELETE FROM pgqueue_step",
    "DELETE FROM pgqueue_workflow",
    "UPDATE pgqueue_step SET job = NULL",
    "UPDATE pgqueue_workflow SET succeeded = steps",
    "SELECT pgqueue_steps_ended('{1}', '{1}')",
    # It steers nothing.
    "UPDATE pgqueue_queue SET paused_at = now()",
    "INSERT INTO pgqueue_queue (name) VALUES ('q')",
    "INSERT INTO pgqueue_lane (name) VALUES ('l')",
    "UPDATE pgqueue_schedule SET task = 't'",
    "UPDATE pgqueue_subscription SET task = 't'",
    "UPDATE pgqueue_topic SET partitions = 1",
    "UPDATE pgqueue_position SET position = 0",
    "SELECT pgqueue_make_archive_day(current_date)",
    "SELECT pgqueue_close_log_day(current_date - 1)",
    "SELECT pgqueue_watch('1 h', '1 h', '1 h', '1 h', 1)",
    "TRUNCATE pgqueue_job",
    "CREATE TABLE queue.mine ()",
]
# Neither the tables, nor what its verbs are made of, nor jobs of tasks.
CLIENT = [
    "SELECT FROM pgqueue_job",
    "SELECT FROM pgqueue_queue",
    "SELECT pgqueue_pull_archive('{1}', '{1}', 'succeeded', false)",
    "SELECT pgqueue_pull_heads('parcels', 1)",
    "SELECT pgqueue_store('q', 't', '[]', '{}', '{}', 0, 5)",
]
VIEWER = ["SELECT pgqueue_receive('parcels')", "SELECT pgqueue_enqueue('t')"]


@pytest.mark.parametrize(
    "kind, statements",
    [("producer", PRODUCER), ("client", CLIENT), ("viewer", VIEWER)],
)
def test_a_role_may_do_nothing_else(place, kind, statements):
    """Each statement fails for want of a right."""
    allowed = []
    with place.connect(kind) as login:
        for statement in statements:
            try:
                login.execute(statement)
            except psycopg.errors.InsufficientPrivilege:
                continue
            allowed.append(statement)

    assert [] == allowed
