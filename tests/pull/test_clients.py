"""The workers of *Work from other languages*, and one in Python, on the same rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from django_pgqueue import topic
from django_pgqueue.testing.embedded import find_binaries
from tests.benchmarks.environments import UnavailableError, open_node
from tests.harness.system import require_system, skip_or_fail
from tests.harness.waiting import patience, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

CLIENTS = Path(__file__).parent.parent.parent / "docs" / "howto" / "clients"

# What the package pg asks for.
NODE_NEEDED = (16, 0)

MESSAGES, GROUPS = 300, 7

# Whoever has written its effect and settles waits here while the test has the lock.
GATE = 4711
TABLE = f"""
CREATE TABLE shop_thumbnail (
    id bigserial, path text NOT NULL,
    by text DEFAULT current_setting('application_name'));
CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_advisory_xact_lock_shared({GATE});
    RETURN coalesce(NEW, OLD);
END $$;
CREATE TRIGGER gate BEFORE DELETE ON pgqueue_job
    FOR EACH ROW EXECUTE FUNCTION gate();
CREATE TRIGGER gate BEFORE UPDATE ON pgqueue_position
    FOR EACH ROW WHEN (NEW.position > OLD.position) EXECUTE FUNCTION gate();
"""
CLOSE, OPEN = (f"SELECT pg_advisory_{verb}({GATE})" for verb in ("lock", "unlock"))
AT_THE_GATE = """
SELECT array_agg(DISTINCT application_name ORDER BY application_name)
  FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'
"""
EFFECTS = "SELECT count(DISTINCT path) FROM shop_thumbnail"
LIVE = "SELECT count(*) FROM pgqueue_job"


@pytest.fixture(scope="module")
def node_folder():
    """node, and a folder with the package pg and the samples."""
    try:
        node, folder = open_node("clients", CLIENTS / "package.json", NODE_NEEDED)
    except UnavailableError as error:
        skip_or_fail(f"Node.js or its package pg cannot be had: {error}")
    for script in CLIENTS.glob("*.mjs"):
        (folder / script.name).write_text(script.read_text())
    return node, folder


@pytest.fixture
def commands(node_folder):
    """How each worker is started, by the name that the database knows it by."""
    program, folder = node_folder
    psql = require_system(
        str(find_binaries().folder / "psql"), "psql", reason="to be a worker in psql"
    )
    return {
        "Node.js": [program, folder / "worker.mjs"],
        "Python": [sys.executable, "-m", "tests.pull.thumbnails"],
        "psql": [psql, "-qX", "--file", CLIENTS / "worker.sql"],
    }


@pytest.fixture
def start(cursor):
    """A function that starts a worker; all of them are killed at last."""
    info = cursor.connection.info
    told = {
        "databases": {"default": {"NAME": connection.settings_dict["NAME"]}},
        "pgqueue": {},
    }
    started = []

    def start(name, command):
        process = subprocess.Popen(
            list(map(str, command)),
            stdout=subprocess.DEVNULL,
            env={
                **os.environ,
                "PGHOST": info.host,
                "PGPORT": str(info.port),
                "PGDATABASE": info.dbname,
                "PGUSER": info.user,
                "PGPASSWORD": info.password,
                "PGAPPNAME": name,
                "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
                "PGQUEUE_TEST_WORKER": json.dumps(told),
            },
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def thumbnails(cursor):
    """The table of effects, and the gate between these and what settles."""
    cursor.execute(TABLE)
    yield
    cursor.execute("DROP TABLE shop_thumbnail; DROP FUNCTION gate CASCADE")


def wait_at_the_gate(cursor, names):
    """Wait until workers of all these names have an effect, and are about to settle."""
    wait_for(
        lambda: cursor.execute(AT_THE_GATE).fetchone() == (sorted(names),),
        timeout=60,
        what=f"each of {', '.join(names)} is between effect and ack",
    )


def kill_at_the_gate(cursor, victims, names):
    """Kill workers there; the server would notice when it answers them."""
    wait_at_the_gate(cursor, names)
    for victim in victims:
        victim.kill()
        victim.wait()
    cursor.execute(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = ANY(%s)",
        [list(names)],
    )


def test_three_languages_share_a_queue_and_are_killed(
    cursor, commands, start, thumbnails
):
    """Each in the middle, between its effect and its ack, and started again: each
    message is done once, those of a group in order, and nothing is left."""
    cursor.execute("SELECT pgqueue_declare_queue('thumbs', 60, 50)")
    cursor.execute(
        "SELECT pgqueue_send_many('thumbs', jsonb_agg("
        "   jsonb_build_object('path', n %% %s || '/' || n) ORDER BY n), lanes =>"
        " jsonb_agg(CASE WHEN n %% 3 = 0 THEN n %% %s || '' END ORDER BY n))"
        " FROM generate_series(1001, 1000 + %s) n",
        [GROUPS, GROUPS, MESSAGES],
    )
    cursor.execute(CLOSE)
    kill_at_the_gate(cursor, [start(*each) for each in commands.items()], commands)
    # Those of a killed receiver come back when their time is over.
    cursor.execute(
        "UPDATE pgqueue_job SET visible_at = now() WHERE leased_by IS NOT NULL"
    )
    assert 2 <= cursor.rowcount  # psql had received and not committed.

    heirs = {name: start(name, command) for name, command in commands.items()}
    wait_at_the_gate(cursor, commands)
    cursor.execute(OPEN)
    wait_for(
        lambda: cursor.execute(LIVE).fetchone() == (0,), timeout=60, what="all is done"
    )
    heirs["Node.js"].terminate()
    assert 0 == heirs["Node.js"].wait(60 * patience())

    cursor.execute("SELECT state, count(*) FROM pgqueue_archived_job GROUP BY state")
    assert [("succeeded", MESSAGES)] == cursor.fetchall()
    cursor.execute("SELECT path, by FROM shop_thumbnail ORDER BY id")
    done = cursor.fetchall()
    assert MESSAGES == len(done) == len({path for path, _ in done})
    assert set(commands) == {by for _, by in done}
    grouped = [path for path, _ in done if int(path.partition("/")[2]) % 3 == 0]
    for group in range(GROUPS):
        of_it = [path for path in grouped if path.startswith(f"{group}/")]
        assert sorted(of_it) == of_it


def test_what_fails_in_node_is_given_back_with_its_error(
    cursor, commands, start, thumbnails
):
    """To be due later, and the worker goes on with the next."""
    cursor.execute("SELECT pgqueue_declare_queue('thumbs', 60, 50)")
    cursor.execute("SELECT pgqueue_send_many('thumbs', '[{}, {\"path\": \"a.jpg\"}]')")
    start("Node.js", commands["Node.js"])
    wait_for(
        lambda: cursor.execute("SELECT path FROM shop_thumbnail").fetchall(),
        what="the good one is done",
    )
    cursor.execute(
        "SELECT visible_at > now(), errors -> 0 ->> 'message' FROM pgqueue_job"
        " WHERE leased_by IS NULL"
    )
    [(is_later, message)] = cursor.fetchall()
    assert is_later
    assert 'null value in column "path"' in message


def test_a_log_is_read_in_node(cursor, node_folder, start, thumbnails):
    """Two readers share the partitions; both are killed before they commit, and started
    again: each message is read once, and those of a key in order."""
    program, folder = node_folder
    topic("photos", partitions=4).group("thumbs").create(start="earliest")
    cursor.execute(
        "SELECT pgqueue_publish('photos',"
        " jsonb_build_object('path', n %% %s || '/' || n), key => n %% %s || '')"
        " FROM generate_series(1001, 1000 + %s) n",
        [GROUPS, GROUPS, MESSAGES],
    )
    readers = {name: [program, folder / "reader.mjs"] for name in ("one", "two")}
    cursor.execute(CLOSE)
    kill_at_the_gate(cursor, [start(*each) for each in readers.items()], readers)
    cursor.execute("SELECT count(leased_by) FROM pgqueue_position")
    assert (0,) == cursor.fetchone()  # Their leases went with their transactions.

    heirs = [start(*each) for each in readers.items()]
    wait_at_the_gate(cursor, readers)
    cursor.execute(OPEN)
    wait_for(
        lambda: cursor.execute(EFFECTS).fetchone() == (MESSAGES,),
        timeout=60,
        what="all is read",
    )
    cursor.execute(
        "SELECT pgqueue_publish('photos', '{\"path\": \"9/last\"}', key => '9')"
    )
    wait_for(
        lambda: cursor.execute(EFFECTS).fetchone() == (MESSAGES + 1,),
        what="what is published later is read, too",
    )
    for heir in heirs:
        heir.terminate()
    assert [0, 0] == [heir.wait(60 * patience()) for heir in heirs]

    cursor.execute("SELECT path, by FROM shop_thumbnail ORDER BY id")
    done = cursor.fetchall()
    assert MESSAGES + 1 == len(done) == len({path for path, _ in done})
    assert {"one", "two"} == {by for _, by in done}
    for key in range(GROUPS):
        of_it = [path for path, _ in done if path.startswith(f"{key}/")]
        assert sorted(of_it) == of_it
