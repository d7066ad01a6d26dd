"""What a platform hears from --health-port, while the worker is well and while not."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
from contextlib import contextmanager

import psycopg
import pytest

from django_pgqueue.postgres.connect import connection_params
from tests.app import crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, is_alive, wait_until_final

pytestmark = pytest.mark.slow

# Half of it is what a process may be silent for.
SHORT_LEASE = {"LEASE_SECONDS": 10}

DOES_NOT_START = "process 0: does not start: it died, or hung, each time"

END_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE datname = %s AND application_name LIKE 'pgqueue %%'
"""


@pytest.fixture
def start_healthy(start_worker):
    """Start a worker with a health port; return it, once it is ready, and the port."""

    def start(*arguments, **options):
        worker = start_worker("--health-port=0", *arguments, **options)
        (line,) = worker.wait_for_lines(r"^  health ")
        port = int(re.search(r":(\d+)/", line)[1])
        wait_for(lambda: ask(port, "/readyz")[0] == 200, 20, "it is ready")
        return worker, port

    return start


def ask(port, path, method="GET"):
    """Return the status and the reasons; (None, []) when nobody answers."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        client.request(method, path)
        answer = client.getresponse()
        body = answer.read()
        return answer.status, json.loads(body).get("reasons", []) if body else []
    except (ConnectionError, http.client.RemoteDisconnected):
        return None, []
    finally:
        client.close()


def processes_of(worker):
    """Return the pids of the worker processes, as their own lines say."""
    lines = worker.lines("started    worker=")
    pids = [int(line.rpartition("pid=")[2]) for line in lines]
    return [pid for pid in pids if is_alive(pid)]


@contextmanager
def no_database():
    """End every connection of workers to the test database, and refuse new ones."""
    params = connection_params("default")
    name, params["dbname"] = params["dbname"], "postgres"
    with psycopg.connect(**params, autocommit=True) as server:
        server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        try:
            server.execute(END_SESSIONS, [name])
            yield
        finally:
            server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


def test_a_worker_that_takes_jobs_is_alive_and_ready(start_healthy):
    """With several processes; to GET and to HEAD, whose answer has no body."""
    _, port = start_healthy(processes=2)

    assert (200, []) == ask(port, "/livez")
    assert (200, []) == ask(port, "/readyz")
    assert (200, []) == ask(port, "/readyz?verbose", "HEAD")
    assert 404 == ask(port, "/")[0]
    assert 405 == ask(port, "/livez", "POST")[0]
    wait_until_final(enqueue(crash_tasks.record, 5))


def test_without_a_database_it_is_alive_and_not_ready(start_healthy):
    """A restart would not help. It says which loops fail, and no detail of it."""
    worker, port = start_healthy()

    with no_database():
        status, reasons = wait_for(
            lambda: (found := ask(port, "/readyz"))[0] == 503 and found,
            20,
            "it is not ready",
        )
        assert 503 == status
        assert reasons
        assert all(re.fullmatch(r"process 0: \w+ fails", r) for r in reasons)
        assert (200, []) == ask(port, "/livez")

    wait_for(lambda: ask(port, "/readyz")[0] == 200, 20, "it is ready again")
    wait_until_final(enqueue(crash_tasks.record, 5))
    assert 0 == worker.stop()


READS = {"TASK_MODULES": ["consume_tasks", "crash_tasks"], **SHORT_LEASE}


def test_a_worker_whose_readers_fail_is_not_ready(start_healthy, cursor):
    """One word for all of them; and its jobs go on meanwhile."""
    worker, port = start_healthy("--queues", "shares,default", pgqueue=READS)

    cursor.execute("ALTER TABLE pgqueue_position RENAME TO pgqueue_position_away")
    # They may have looked already, and would look again after the poll interval.
    cursor.execute("SELECT pg_notify(pgqueue_channel(), '!topic shares')")
    try:
        wait_for(
            lambda: ["process 0: reader fails"] == ask(port, "/readyz")[1],
            20,
            "it is not ready",
        )
        assert (200, []) == ask(port, "/livez")
        wait_until_final(enqueue(crash_tasks.record, 5))
    finally:
        cursor.execute("ALTER TABLE pgqueue_position_away RENAME TO pgqueue_position")

    wait_for(lambda: ask(port, "/readyz")[0] == 200, 20, "it is ready again")
    assert 0 == worker.stop()


def test_a_process_that_is_frozen_is_not_alive(start_healthy):
    """It is silent for half of a lease. When it goes on, all is well again."""
    worker, port = start_healthy(processes=2, pgqueue=SHORT_LEASE)
    frozen = processes_of(worker)[0]

    os.kill(frozen, signal.SIGSTOP)
    status, reasons = wait_for(
        lambda: (found := ask(port, "/livez"))[0] == 503 and found,
        20,
        "it is not alive",
    )
    assert 503 == status
    assert re.fullmatch(r"process [01]: silent for \d+ s", reasons[0])
    assert 503 == ask(port, "/readyz")[0]

    os.kill(frozen, signal.SIGCONT)
    wait_for(lambda: ask(port, "/livez")[0] == 200, 20, "it is alive again")
    wait_for(lambda: ask(port, "/readyz")[0] == 200, 20, "it is ready again")


def test_a_worker_that_stops_is_alive_and_not_ready(start_healthy, the_ledger, gate):
    """As long as a job runs; then nobody answers, and the port is free."""
    worker, port = start_healthy()
    (job,) = enqueue(crash_tasks.record_through_gate, gate=str(gate))
    wait_for(lambda: the_ledger.starts()[job], 20, "the job runs")
    worker.signal(signal.SIGTERM)
    worker.wait_for_lines("stopping ")

    assert "stopping" in ask(port, "/readyz")[1]
    assert (200, []) == ask(port, "/livez")

    gate.touch()
    assert 0 == worker.wait()
    assert (None, []) == ask(port, "/livez")


def test_processes_that_die_at_their_start_are_not_alive(start_healthy):
    """Three in a row: something is wrong that perhaps a new container fixes."""
    worker, port = start_healthy()

    for number in range(1, 4):
        worker.wait_for_lines("started    worker=", number)
        (young,) = processes_of(worker)
        os.kill(young, signal.SIGKILL)

    wait_for(
        lambda: [DOES_NOT_START] == ask(port, "/livez")[1],
        20,
        "it is not alive",
    )
    # The next one lives.
    wait_for(lambda: ask(port, "/livez")[0] == 200, 20, "it is alive again")


def test_a_process_that_hangs_at_its_start_is_replaced(start_worker, gate):
    """Code of the project waits for something: it is told, and tried again."""
    gate.touch()
    worker = start_worker(
        "--health-port=0",
        settings={"HANGS_WHILE": str(gate)},
        pgqueue={"TASK_MODULES": ["hanging_start"]},
        wait=False,
    )
    (line,) = worker.wait_for_lines(r"^  health ")
    port = int(re.search(r":(\d+)/", line)[1])

    worker.wait_for_lines("hanging    worker=")
    wait_for(lambda: [DOES_NOT_START] == ask(port, "/livez")[1])

    gate.unlink()
    worker.wait_for_lines("started    worker=")
    wait_for(lambda: ask(port, "/livez")[0] == 200, 20, "it is alive again")


def test_a_port_that_is_taken_is_an_error_at_the_start(start_worker):
    """With the port and the host, before any process is started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        worker = start_worker(f"--health-port={port}", wait=False)

        assert 1 == worker.wait()

    text = worker.log.read_text()
    assert f"--health-port {port} on 127.0.0.1 cannot be used" in text
    assert "Traceback" not in text
    assert [] == worker.lines("started ")
