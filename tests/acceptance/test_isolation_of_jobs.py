"""Isolation: what a job leaves behind does not reach the next one."""

from __future__ import annotations

import pytest

from tests.app import control_tasks
from tests.app.models import Effect
from tests.harness.worker_process import enqueue, wait_until_final

pytestmark = pytest.mark.smoke

# A connection that lives on from job to job: else each job has a new one anyway.
KEPT = {"default": {"CONN_MAX_AGE": None}}

SESSION = [
    "open transaction",
    "aborted transaction",
    "autocommit off",
    "raw autocommit off",
    "role",
    "search_path",
    "zone",
    "statement_timeout",
    "raw set",
    "temporary tables",
    "into temporary",
    "locks",
    "held cursor",
    "server cursor",
    "prepared",
    "listens",
    "behind another",
]
PROCESS = ["language", "django zone", "precision"]


def one_after_the_other(what):
    """Enqueue each leftover with a job behind it that looks around; all their ids."""
    ids = []
    for leftover in what:
        ids += enqueue(control_tasks.leaves, what=leftover)
        ids += enqueue(control_tasks.looks_around)
    return ids


@pytest.mark.parametrize("what", [SESSION, PROCESS], ids=["session", "process"])
def test_a_job_finds_everything_as_the_first_one_did(start_worker, the_ledger, what):
    """With one thread: the very next job, on the same connection settings."""
    (first,) = enqueue(control_tasks.looks_around)
    ids = one_after_the_other(what)
    start_worker("--queues=default", threads=1, databases=KEPT)

    final = wait_until_final([first, *ids], 40)

    left = dict(zip(ids[::2], what, strict=True))
    failed = [left[job] for job in ids[::2] if final[job].state != "succeeded"]
    assert [] == failed
    found = {entry.job: entry.note for entry in the_ledger.entries("found")}
    behind = {left[a]: found[b] for a, b in zip(ids[::2], ids[1::2], strict=True)}
    differs = {
        leftover: {
            key: value for key, value in after.items() if value != found[first][key]
        }
        for leftover, after in behind.items()
    }
    assert {leftover: {} for leftover in what} == differs
    assert 0 == Effect.objects.filter(note="never committed").count()
