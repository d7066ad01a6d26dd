"""
Guards: protections of which one test each says that they are there.

The rows of the matrix would meet the moment that they are for once in thousands of
runs. So each is taken out of a copy of the package, where its own test must fail:
``python -m tests.faults --guards``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.broken import Edit, make_changed
from tests.faults.build import REPOSITORY

SECONDS_MAX = 300

# pytest's statuses.
PASSED, FAILED = 0, 1


@dataclass(frozen=True, slots=True)
class Guard:
    """What is taken out, and the test that then fails."""

    title: str
    edit: Edit
    test: str


GUARDS: dict[str, Guard] = {
    "generations-beside": Guard(
        "partitions of two counts are read without regard to each other",
        Edit("log/merge.py", "up_to, is_halted", "%(bound)s::bigint, is_halted"),
        "log/test_generations.py::test_each_key_keeps_its_order_across_changes",
    ),
    "closed-too-soon": Guard(
        "former partitions are closed while a snapshot of before has no id yet",
        Edit(
            "log/snapshots.py",
            "AND a.backend_xmin IS NOT NULL",
            "AND a.backend_xid IS NOT NULL",
        ),
        "log/test_generations.py::test_a_generation_ends_once_no_snapshot_is_of_before",
    ),
    "turn-goes-beyond": Guard(
        "a turn reads what came after its claim, and perhaps after a change",
        Edit(
            "worker/read/reader.py",
            "self._turn = (batches - 1, until)\n        finally",
            "self._turn = (batches - 1, until)\n"
            "                end = self._bounds.now().of(group.topic_id)\n"
            "        finally",
        ),
        "worker/read/test_reader.py::"
        "test_a_turn_reads_nothing_that_came_after_a_change_of_the_count",
    ),
    "queue-forgotten": Guard(
        "a worker of all queues forgets one that is empty for a moment",
        Edit("worker/claim/claimer.py", "if now - at < KNOWN_SECONDS", "if now < at"),
        "worker/claim/test_claimer.py::test_a_queue_that_is_empty_for_a_moment_stays_known",
    ),
    "no-rechecks": Guard(
        "no round follows a wake that others may have stood behind",
        Edit(
            "worker/claim/poller.py",
            "for seconds in RECHECK_SECONDS[1:]]",
            "for seconds in RECHECK_SECONDS[3:]]",
        ),
        "worker/claim/test_poller_never_stalls.py",
    ),
    "told-too-late": Guard(
        "what becomes due during a look is compared with the plan before it",
        Edit("worker/claim/poller.py", "        self._due_times.append(at)\n", ""),
        "worker/claim/test_claimer.py",
    ),
    "floods": Guard(
        "each wake of many names is answered at once",
        Edit(
            "worker/claim/poller.py",
            "            # A round answers it, and counts as empty until it finds"
            " something.\n            self._note_empty_wake()\n",
            "            pass\n",
        ),
        "worker/claim/test_claimer.py::test_a_flood_of_names_costs_few_looks",
    ),
    "renewed-too-late": Guard(
        "what ran out here is claimed before it is renewed",
        Edit(
            "worker/claim/claimer.py",
            "            self._renewal.renew(self.link, lapsed)\n",
            "",
        ),
        "worker/claim/test_claimer.py::"
        "test_what_runs_here_is_renewed_before_anything_is_claimed",
    ),
    "locked-is-lost": Guard(
        "a row that is locked when its lease runs out is taken for lost",
        Edit(
            "worker/lease/renewal.py",
            "            if held.job.id in ours:\n",
            "            if not ours:\n",
        ),
        "worker/chores/test_heartbeat.py::"
        "test_a_row_that_is_locked_when_its_lease_runs_out_is_not_lost",
    ),
    "unheard": Guard(
        "nobody hands back what a claim without an answer has leased",
        Edit(
            "worker/claim/strays.py",
            "            self.note()\n",
            "            pass\n",
        ),
        "worker/claim/test_claimer.py::"
        "test_jobs_of_a_claim_without_an_answer_are_handed_back",
    ),
    "stuck-in-transaction": Guard(
        "a loop keeps a connection that is in an aborted transaction",
        Edit("worker/service.py", "    if not link.is_idle:\n", "    if False:\n"),
        "worker/test_service.py::test_a_loop_gets_out_of_an_aborted_transaction",
    ),
    "deaf-to-signals": Guard(
        "a signal handler waits for a lock of its own thread",
        Edit(
            "postgres/wakeup.py",
            "self._lock = threading.RLock()",
            "self._lock = threading.Lock()",
        ),
        "worker/supervise/test_stop_signals.py",
    ),
    "portion": Guard(
        "a claim over the role's statement_timeout is tried again at the same size",
        Edit(
            "worker/claim/claimer.py",
            "            self._portion.shrink(limit)\n",
            "",
        ),
        "worker/claim/test_claimer.py::"
        "test_a_claim_that_is_cancelled_for_its_time_takes_fewer_jobs",
    ),
    "lone-calls": Guard(
        "a call that met a late job and is written down is never made again",
        Edit(
            "queues/repeat.py",
            "FROM pgqueue_repeat_calls(%(limit)s) AS repeated\n",
            "FROM pgqueue_repeat_calls(%(limit)s) AS repeated WHERE false\n",
        ),
        "queues/test_repeat.py",
    ),
    "large-batches": Guard(
        "a batch is bounded by messages alone",
        Edit(
            "worker/read/reader.py",
            "                max_bytes=self.consumer.batch_bytes,\n",
            "                max_bytes=2**31 - 1,\n",
        ),
        "worker/read/test_reader.py::test_large_messages_come_in_batches_that_fit",
    ),
    "after-its-lease": Guard(
        "the handler of a group is called though its lease is over",
        Edit(
            "worker/read/reader.py",
            "                lease_seconds=left,\n",
            "                lease_seconds=lambda: 1.0,\n",
        ),
        "worker/read/test_reader.py::test_a_handler_is_not_called_after_its_lease",
    ),
    "fell-behind": Guard(
        "a log whose sequence fell behind its positions is read as if it were empty",
        Edit(
            "worker/read/reader.py",
            "                positions.refuse_beyond(group, seen)\n",
            "",
        ),
        "worker/read/test_reader.py::test_a_reader_whose_log_fell_behind_says_so",
    ),
    "other-installations": Guard(
        "publishers of another installation in the database hold readers back",
        Edit(
            "sql/horizons.sql",
            "AND ours.virtualtransaction = held.virtualtransaction)",
            "OR true)",
        ),
        "log/test_two_installations.py",
    ),
}


def run(
    names: Iterable[str], package: Path, folder: Path, say: Callable[[str], None]
) -> list[str]:
    """Take out each of *names*; return those that no test has missed."""
    missed = []
    for name in names:
        guard = GUARDS[name]
        build = make_changed(name, (guard.edit,), package, folder / f"guard-{name}")
        _bring_tests(build)
        status = _test(guard.test, build)
        shutil.rmtree(build, ignore_errors=True)
        if status != FAILED:
            missed.append(name)
        told = {PASSED: "NOBODY MISSED IT", FAILED: "its test fails"}
        say(f"{name:<22} {guard.title}: {told.get(status, f'pytest ended {status}')}")
    return missed


def _bring_tests(build: Path) -> None:
    """Copy them: pytest follows a link, and would import the package beside its end."""
    tests = build / "tests"
    tests.unlink()
    shutil.copytree(
        REPOSITORY / "tests", tests, ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(REPOSITORY / "pyproject.toml", build)


def _test(test: str, build: Path) -> int:
    """Run a test on a build; return pytest's status."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"),
            f"tests/{test}",
        ],
        cwd=build,
        env={**os.environ, "PYTHONPATH": str(build)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=SECONDS_MAX,
        check=False,
    ).returncode
