"""Every option of @task, in every way to run a job: the same rows, the same signals."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from django.db import connection

from django_pgqueue import task
from django_pgqueue.models import Job
from django_pgqueue.testing import drain
from tests.app.option_tasks import ASYNC, CASES, PLAIN
from tests.harness import ledger
from tests.harness.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

# What all three tables have, and what only some of them.
ROWS = """
SELECT id, 'live ' || CASE WHEN visible_at > now() THEN 'later' ELSE 'now' END AS place,
       to_jsonb(j) AS row
  FROM pgqueue_job j
UNION ALL SELECT id, state, to_jsonb(j) FROM pgqueue_archived_job j
UNION ALL SELECT id, 'dead ' || reason, to_jsonb(j) FROM pgqueue_dead_letter j
"""

# By the clock, or by who did it.
DIFFERENT = {"id", "task", "enqueued_at", "run_after", "visible_at", "finished_at"}
# A number of a sequence; and a worker claims jobs that take turns without any.
DIFFERENT |= {"promotion"}
# Of these, whether there is one.
SAID = {"started_at", "worker", "dedup_key", "queued_key", "leased_by"}
SAID |= {"lane", "lane_due_at"}
OF_AN_ERROR = {"at", "worker", "traceback", "ran_seconds", "retry_at", "fingerprint"}


def rows(*, by_worker: bool) -> dict[int, Any]:
    """Return where each job is, and what its row says."""
    with connection.cursor() as cursor:
        cursor.execute(ROWS)
        return {
            job: (place, _comparable(json.loads(row), by_worker))
            for job, place, row in cursor.fetchall()
        }


def _comparable(row: dict[str, Any], by_worker: bool) -> dict[str, Any]:
    row = {name: value for name, value in row.items() if name not in DIFFERENT}
    row |= {name: row[name] is not None for name in SAID & {*row}}
    row["errors"] = [
        {
            name: str(value).replace(" async", "")
            for name, value in error.items()
            if name not in OF_AN_ERROR
        }
        | {"has": sorted(OF_AN_ERROR & {*error})}
        for error in row["errors"]
    ]
    # Who failed, did so in the last delivery.
    for error in row["errors"]:
        error["delivery"] = row["deliveries"] - int(error["delivery"])
    if by_worker:
        # Stuck for a moment, it has handed back what it had claimed ahead, and delivers
        # that once more.
        row["deliveries"] = min(row["deliveries"], 1)
    return row


@pytest.fixture
def run(the_ledger, start_worker, settings, monkeypatch, archive_days) -> Any:
    """Run each of *tasks* in one way; return by case what became of it."""

    def run(tasks: dict[str, Any], how: str) -> dict[str, Any]:
        worker = None
        if how in ("drain", "immediate"):
            monkeypatch.setenv(ledger.PATH, str(the_ledger.path))
        settings.PGQUEUE = {"MODE": "immediate"} if how == "immediate" else {}
        ids = {case: tasks[case].delay(how=CASES[case][1]).id for case in tasks}
        settings.PGQUEUE = {}
        if how in ("drain", "immediate"):
            # Also what has waited for its time in immediate mode.
            wait_for(lambda: drain() == 0, what="nothing is due")
        else:
            worker = start_worker(threads=2)
            wait_for(lambda: _is_over(the_ledger, ids), what="all attempts have ended")
            assert 0 == worker.stop()
        monkeypatch.delenv(ledger.PATH, raising=False)
        found = rows(by_worker=worker is not None)
        heard = {case: [] for case in ids}
        Job.objects.all().delete()  # Nothing of it runs again in the next way.
        by_id = {job: case for case, job in ids.items()}
        for entry in the_ledger.entries():
            if entry.job in by_id and entry.event in SIGNALS:
                note = json.loads(json.dumps(entry.note).replace(" async", ""))
                told = (entry.event, entry.attempt, note)
                heard[by_id[entry.job]].append(told)
        return {case: (found.get(ids[case]), heard[case]) for case in ids}

    return run


SIGNALS = ("started", "succeeded", "retried", "dead", "cancelled", "expired")


def _is_over(the_ledger, ids) -> bool:
    ended = {entry.job for entry in the_ledger.entries() if entry.event in SIGNALS[1:]}
    return ended >= {*ids.values()}


def differences(expected: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return by case what is not the same, of the row and of the signals."""
    told = {}
    for case, (row, heard) in expected.items():
        other, also_heard = found[case]
        if row is None or other is None or row[0] != other[0]:
            if row != other:
                told[case] = (row and row[0], other and other[0])
        elif row != other:
            told[case] = {
                name: (value, other[1].get(name))
                for name, value in row[1].items()
                if value != other[1].get(name)
            }
        if heard != also_heard:
            told[f"{case}: signals"] = (heard, also_heard)
    return told


def test_every_option_has_a_case():
    """A new one is added to the cases, and so is tried in every way."""
    options = {*inspect.signature(task).parameters} - {"function"}

    assert options == {name for told, _ in CASES.values() for name in told}


@pytest.mark.slow
def test_every_way_leaves_the_same_rows_and_signals(run):
    """A thread, drain() and immediate mode; a coroutine."""
    thread = run(PLAIN, "thread")
    for way in ("drain", "immediate"):
        assert {} == differences(thread, run(PLAIN, way)), way
    for way in ("coroutine", "drain", "immediate"):
        found = run(ASYNC, way)
        assert {} == differences({case: thread[case] for case in ASYNC}, found), way

    # A row that nobody leaves would be the same everywhere, too.
    assert {case for case in CASES if thread[case][0] is None} == {
        *("archive", "archive, manual", "archive, accumulate"),
    }
    assert "dead exhausted" == thread["retries, fails"][0][0]
