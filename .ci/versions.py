"""
Run what other versions of Python, Django and PostgreSQL may change: `make versions`.

    versions.py [--short] [ARGUMENT…]

All that talks to Django, psycopg or PostgreSQL is tested on more than one version; what
is named here is not. Of the tests that start real workers, those of the mark `smoke`:
how Python starts, forks, signals, awaits and ends a process, what connections are, and
what Django and other libraries do within a job. What workers agree on among themselves
is SQL, which is tested by itself. Arguments are pytest's.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Times are compared once; and of Spark there is `make smoke`.
MARKS = "not slow and not timing and not spark and (smoke or not whole)"

LEFT_OUT = [
    # Pages.
    "tests/docs",
    "tests/test_docs.py",
    "tests/test_first_steps.py",
    # Measures, and bounds at size.
    "tests/benchmarks",
    "tests/management/test_bench.py",
    "tests/scale",
    "tests/admin/test_costs.py",
    # Arithmetic, and decisions of values alone.
    "tests/timetable",
    "tests/redaction",
    "tests/options",
    "tests/tasks/test_outcome.py",
    "tests/worker/claim/test_fair_share.py",
    "tests/worker/claim/test_poller_never_stalls.py",
    # Text of our sources, and what tests are run by.
    "tests/test_layout.py",
    "tests/harness/test_fork_server.py",
    "tests/harness/test_seeds.py",
    "tests/harness/test_servers.py",
    "tests/faults",
    # A server of its own, of one version.
    "tests/testing/test_embedded.py",
]

# What a version of Django or of PostgreSQL has changed before, in a few minutes.
SHORT = [
    "tests/models",
    "tests/queues",
    "tests/log",
    "tests/postgres",
    "tests/admin/test_jobs.py",
    "tests/admin/test_queues.py",
    "tests/admin/test_dead_letters.py",
    "tests/admin/test_schedules.py",
    "tests/acceptance/test_transactions.py",
    "tests/acceptance/test_retries.py",
]


def main(*arguments: str) -> int:
    chosen = []
    if arguments[:1] == ("--short",):
        chosen, arguments = SHORT, arguments[1:]
    ignored = [f"--ignore={name}" for name in LEFT_OUT]
    command = [sys.executable, "-m", "pytest", "-m", MARKS, *ignored]
    command += [*arguments, *chosen]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
