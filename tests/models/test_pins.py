"""No name that a function of ours uses can be captured by a search_path."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from tests.log.installations import SCHEMAS, Connect, installations, to

__all__ = ["installations", "to"]

# Their bodies qualify all that they use, as a setting would cost more than they do.
QUALIFIED = {"pgqueue_check_job"}

FUNCTIONS = """
SELECT p.proname::text, coalesce(p.proconfig, '{}'),
       format('search_path=%s, pg_temp', p.pronamespace::regnamespace)
  FROM pg_proc p JOIN pg_class c ON c.relnamespace = p.pronamespace
 WHERE c.oid = 'pgqueue_job'::regclass AND p.proname ~ '^pgqueue_'
"""

# What ours use of the server, by the types of their arguments: a body that is neither
# pinned nor qualified would call those of a schema that its caller's path has first.
USED = {
    "clock_timestamp": [""],
    "now": [""],
    "random": [""],
    "statement_timestamp": [""],
    "to_char": ["timestamp, text", "timestamptz, text"],
    "timezone": ["text, timestamptz"],
    "to_regclass": ["text"],
    "split_part": ["text, text, integer"],
    "string_to_array": ["text, text"],
    "cardinality": ["anyarray"],
    "set_config": ["text, text, boolean"],
    "current_setting": ["text, boolean"],
    "pg_notify": ["text, text"],
    "pg_advisory_xact_lock": ["integer, integer"],
    "pg_advisory_xact_lock_shared": ["integer, integer"],
    "hashtextextended": ["text, bigint"],
    "jsonb_typeof": ["jsonb"],
    "jsonb_array_elements": ["jsonb"],
    "length": ["text"],
    "octet_length": ["text", "name"],
    "md5": ["text"],
    "encode": ["bytea, text"],
    "nextval": ["regclass"],
    "pg_sequence_last_value": ["regclass"],
    "unnest": ["anyarray"],
    "generate_series": ["integer, integer"],
    "jsonb_array_length": ["jsonb"],
    "jsonb_array_elements_text": ["jsonb"],
    "jsonb_set": ["jsonb, text[], jsonb"],
    "jsonb_strip_nulls": ["jsonb"],
    "jsonb_each": ["jsonb"],
    "to_jsonb": ["anyelement"],
    "array_to_json": ["anyarray"],
    "left": ["text, integer"],
    "count": [],
}
OPERATORS = {
    "=": ["text,text", "varchar,varchar", "varchar,text", "integer,integer", "oid,oid"],
    "<>": ["text,text", "varchar,varchar"],
    "||": ["text,text", "varchar,varchar", "text,integer", "text,oid"],
    "&": ["bigint,bigint"],
    "+": ["bigint,bigint", "integer,integer", "integer,bigint"],
    "-": ["bigint,bigint", "bigint,integer"],
    ">=": ["smallint,integer", "bigint,bigint", "timestamptz,timestamptz"],
    "<": ["timestamptz,timestamptz", "bigint,bigint"],
    "~": ["text,text", "varchar,text"],
    "!~": ["text,text"],
}
RAISES = "LANGUAGE plpgsql AS $f$ BEGIN RAISE 'captured'; END $f$"

SIGNATURES = """
SELECT p.proname::text, oidvectortypes(p.proargtypes)
  FROM pg_proc p JOIN pg_class c ON c.relnamespace = p.pronamespace
 WHERE c.oid = 'pgqueue_job'::regclass AND p.prorettype <> 'trigger'::regtype
"""
TABLES = """
SELECT t.relname::text FROM pg_class t JOIN pg_class c USING (relnamespace)
 WHERE c.oid = 'pgqueue_job'::regclass AND t.relkind IN ('r', 'p')
   AND t.relname ~ '^pgqueue_'
"""

# A step of a task that is followed by one that gathers.
STEPS = """[
    {"name": "a", "kind": "step", "after": [], "next": [1], "task": "first",
     "job": {"queue": "q", "args": [], "kwargs": {}, "headers": {}, "priority": 0,
             "max_attempts": 5, "bytes_max": 9}},
    {"name": "b", "kind": "step", "after": [0], "next": [], "takes": "results"},
    {"name": "c", "kind": "on_error", "after": [], "next": [], "takes": "failure",
     "task": "last", "job": {"queue": "q", "args": [null], "kwargs": {}, "headers": {},
     "priority": 0, "max_attempts": 5, "bytes_max": 900}}]"""

# One call of each of ours, and a row that the trigger and the check look at.
CALLS = [
    "SELECT one.pgqueue_channel() = 'pgqueue_one'",
    "SELECT one.pgqueue_installation()",
    "SELECT one.pgqueue_store('q', 't', '[]', '{}', '{}', 0, 5)",
    "SELECT one.pgqueue_enqueue('t', run_after => now())",
    "SELECT one.pgqueue_dedup_key('t', '[1]')",
    """SELECT one.pgqueue_store_unique('q', 't', '[]', '{}', '{}', 0, 5, NULL, NULL,
       clock_timestamp(), 'k', 'queued', 'skip', NULL, '1 h', 3, true)""",
    "SELECT one.pgqueue_retake_keys('{1}', '{f}', '10ms')",
    "SELECT one.pgqueue_repeat_calls(5)",
    "SELECT * FROM one.pgqueue_watch('1 h', '1 h', '1 h', '1 h', 1)",
    "SELECT one.pgqueue_promote('{a}', true, '{0}', '{0}', '{now}', now())",
    "SELECT * FROM one.pgqueue_turns('default', '', 0, '', 9, 9, 9, '{}')",
    "SELECT one.pgqueue_declare_queue('p', 60, 3, true)",
    "SELECT one.pgqueue_send('p', '{}', 1, NULL, 'k', '{}', 0, 9, 3, true)",
    """SELECT one.pgqueue_send_many('p', '[1]', 0, '["a"]', '{}', 0, 9, 3, true)""",
    "SELECT one.pgqueue_check_send(1, 1, 1)",
    "SELECT one.pgqueue_pull_queue('p')",
    "SELECT one.pgqueue_pull_lane('p', 'a')",
    "SELECT one.pgqueue_pull_receipts('7:7 8:8')",
    "SELECT one.pgqueue_pull_answer('{7,8}', '{7,8}', '{7}')",
    "SELECT one.pgqueue_pull_errors('[]', 'error', 'no', 'me', 1, 1)",
    "SELECT one.pgqueue_pull_archive('{7}', '{7}', 'succeeded', true)",
    "SELECT one.pgqueue_pull_bury('{7}', '{7}', 'rejected', 'error', 'no', true)",
    "SELECT one.pgqueue_pull_heads('p', 3)",
    "SELECT one.pgqueue_receive('p', 1, 60, 'me')",
    "SELECT one.pgqueue_due_in('p')",
    "SELECT one.pgqueue_extend('7:7', 9)",
    "SELECT one.pgqueue_nack('7:7', 9, 'no', true)",
    "SELECT one.pgqueue_reject('7:7', 'no', true)",
    "SELECT one.pgqueue_ack('7:7 8:8', true)",
    "SELECT one.pgqueue_pattern_selects('a.*', 'a.b.c')",
    "SELECT one.pgqueue_patterns_of('a.b.c')",
    "SELECT one.pgqueue_patterns_of('a.b.c.d.e.f.g')",
    "SELECT one.pgqueue_begin_publish('a')",
    "SELECT one.pgqueue_publish('a.b', '{}', 'k', '{}', NULL)",
    "SELECT one.pgqueue_publish('a.b', '{}', 'k', '{}', clock_timestamp())",
    """SELECT * FROM one.pgqueue_schedule_messages(
       '[["a.b", "k", 1, {}, null, 7]]', clock_timestamp())""",
    "SELECT one.pgqueue_store_message('a.b.c.d.e.f.g', NULL, '{}', '{}')",
    """SELECT one.pgqueue_store_messages('a', '[["a.b", "k", 1, {}]]')""",
    "SELECT one.pgqueue_message_lane('t', '{key,name,payload.a.b}', 'n', 'k', '{}')",
    """SELECT one.pgqueue_capture_less('{"old": {"a": "x"}, "new": null}', 2)""",
    "SELECT one.pgqueue_horizons()",
    """WITH made AS (
       INSERT INTO one.pgqueue_consumer_group (topic_id, topic, name, task)
       SELECT id, 'a', 'pulled', '' FROM one.pgqueue_topic ON CONFLICT DO NOTHING
       RETURNING 1) SELECT 1""",
    "SELECT * FROM one.pgqueue_read('a/pulled', 1)",
    "SELECT count(*) FROM one.pgqueue_unread(1, 1, 9, '-infinity')",
    "SELECT one.pgqueue_commit_position('1 1 9 pull:1/a', 9)",
    "SELECT one.pgqueue_inbox('stripe', 'evt_1')",
    "SELECT one.pgqueue_make_log_day(current_date + 9)",
    "SELECT one.pgqueue_make_archive_day(current_date + 9)",
    "SELECT one.pgqueue_make_log_day(current_date - 1)",
    "SELECT one.pgqueue_close_log_day(current_date - 1)",
    f"""SELECT * FROM one.pgqueue_start_workflow(
        'w', 'k', '{STEPS}', '{{1}}', true, 'batch', true, '1 h', 'v', NULL)""",
    """SELECT one.pgqueue_start_workflow(
       'w', 'k', '[]', '{}', true, 'batch', false, NULL, NULL, 1)""",
    "SELECT one.pgqueue_lock_workflows('{1}')",
    "SELECT one.pgqueue_batches_in(1)",
    f"SELECT one.pgqueue_add_steps(1, '{STEPS}')",
    "SELECT one.pgqueue_insert_steps(7, '{}', '[]')",
    "SELECT one.pgqueue_close_workflow(1)",
    "SELECT one.pgqueue_restart_workflow(7, 71)",
    "SELECT one.pgqueue_compensate('{7}', true)",
    """SELECT one.pgqueue_meets('[{"step": 7, "op": "in", "value": [1]}]')""",
    # Of no workflow that there is, but through all that they do.
    "SELECT one.pgqueue_advance('{-1}', '{-2}', '{-3}', true)",
    "SELECT one.pgqueue_start_steps('{-1}', true)",
    "SELECT one.pgqueue_store_steps('{-1}', true)",
    "SELECT one.pgqueue_results_of('{-1}')",
    "SELECT one.pgqueue_failure_of(7)",
    "SELECT one.pgqueue_steps_ended('{-1}', '{-1}')",
    # The triggers; this one ends a workflow, and starts what is called for it.
    "WITH gone AS (DELETE FROM one.pgqueue_job RETURNING task) SELECT 1",
    "WITH gone AS (DELETE FROM one.pgqueue_dead_letter RETURNING task) SELECT 1",
    """INSERT INTO one.pgqueue_job (task, run_after) VALUES ('t', '2026-01-01Z')
       RETURNING visible_at""",
]


# Where the schema of the installation is: last, between others, behind another
# installation, or nowhere.
PATHS = [
    "evil, pg_temp, pg_catalog, one",
    "evil, pg_temp, pg_catalog, one, public",
    'evil, pg_temp, pg_catalog, "tenant ""2""", one',
    "evil, pg_temp, pg_catalog",
]


@pytest.fixture(params=PATHS)
def hostile(to: Connect, request: pytest.FixtureRequest) -> psycopg.Connection[Any]:
    """A session whose path has somebody's schema before all others, and such tables."""
    connection = to("one")
    connection.execute("DROP SCHEMA IF EXISTS evil CASCADE; CREATE SCHEMA evil")
    for name, arguments in connection.execute(SIGNATURES).fetchall():
        connection.execute(
            f"CREATE FUNCTION evil.{name}({arguments}) RETURNS text {RAISES}"
        )
    for table in connection.execute(TABLES).fetchall():
        connection.execute(f"CREATE TABLE evil.{table[0]} (captured integer)")
        connection.execute(f"CREATE TEMP TABLE {table[0]} (captured integer)")
    for name, all_arguments in USED.items():
        for arguments in all_arguments:
            connection.execute(
                f"CREATE FUNCTION evil.{name}({arguments}) RETURNS text {RAISES}"
            )
    for name, all_types in OPERATORS.items():
        for types in all_types:
            left, right = types.split(",")
            connection.execute(
                f"CREATE OR REPLACE FUNCTION evil.op({types}) RETURNS boolean {RAISES}"
            )
            connection.execute(
                f"CREATE OPERATOR evil.{name} (FUNCTION = evil.op,"
                f" LEFTARG = {left}, RIGHTARG = {right})"
            )
    connection.execute(f"SET search_path = {request.param}")
    return connection


def test_no_path_of_the_caller_captures_what_a_function_names(
    hostile: psycopg.Connection[Any],
):
    """Neither a table, temporary ones too, nor a function, nor an operator."""
    for call in CALLS:
        # This session would be captured itself.
        with pytest.raises(psycopg.Error):
            hostile.execute(call.replace("one.pgqueue", "pgqueue"))
        ours = call.replace(" = 'p", " OPERATOR(pg_catalog.=) 'p")
        ours = re.sub(r"\b(now|clock_timestamp)\(", r"pg_catalog.\1(", ours)
        ours = re.sub(r"_date ([+-]) ", r"_date OPERATOR(pg_catalog.\1) ", ours)
        assert 1 >= len(hostile.execute(ours).fetchall()), call


def test_rows_go_to_the_schema_of_the_function(to: Connect):
    """Whichever installation the path has first, or none."""
    for path in ('"tenant ""2""", one, public', "public, one", "public"):
        session = to(path=path)
        before = session.execute("SELECT count(*) FROM one.pgqueue_job").fetchone()
        session.execute("SELECT one.pgqueue_enqueue('t')")
        session.execute("SELECT one.pgqueue_store('q', 't', '[]', '{}', '{}', 0, 5)")
        session.execute("SELECT one.pgqueue_publish('orders.paid', '{}')")
        after = session.execute("SELECT count(*) FROM one.pgqueue_job").fetchone()
        assert (2,) == (after[0] - before[0],)
    other = to('tenant "2"')
    assert (0,) == other.execute("SELECT count(*) FROM pgqueue_job").fetchone()
    assert (0,) == other.execute("SELECT count(*) FROM pgqueue_message").fetchone()


def test_every_function_is_called_by_the_test_before(to: Connect):
    """One that is added is tried, too; but for those of triggers and of checks."""
    called = set(re.findall(r"one\.(pgqueue_\w+)\(", " ".join(CALLS)))
    ours = {name for name, _ in to("one").execute(SIGNATURES)}

    assert ours - called == {"pgqueue_check_job", "pgqueue_make_day"}


def test_every_function_is_pinned_to_its_schema(to: Connect):
    """A migration that adds or replaces one ends with sql/pins.sql."""
    for schema in SCHEMAS:
        found = to(schema).execute(FUNCTIONS).fetchall()
        loose = [
            name
            for name, settings, pin in found
            if name not in QUALIFIED and pin not in settings
        ]
        assert 20 <= len(found)
        assert [] == loose
