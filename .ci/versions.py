"""
Run the tests of what other versions of Python, Django and PostgreSQL change.

    versions.py [--short] [ARGUMENT…]        (`make versions`)

Each version gets everything that talks to Django, psycopg or PostgreSQL, and the tests
with the mark `smoke` of those that are slow or start workers: how PostgreSQL plans, how
Python starts, forks, signals, awaits and ends a process, and what Django and other
libraries do within a job. Workers agree among themselves in SQL, which is tested by
itself. Arguments are pytest's.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MARKS = "not spark and (smoke or not slow and not whole)"

# SQL, models, migrations, and the parts of Django that change most.
SHORT = [
    "tests/models",
    "tests/queues",
    "tests/log",
    "tests/postgres",
    "tests/admin",
    "tests/acceptance/test_transactions.py",
    "tests/acceptance/test_retries.py",
]
CHOSEN = [
    *("tests/models", "tests/queues", "tests/log", "tests/postgres", "tests/admin"),
    *("tests/acceptance", "tests/crashes", "tests/worker", "tests/tasks"),
    *("tests/topics", "tests/pull", "tests/schedules", "tests/workflows"),
    *("tests/operators", "tests/backends", "tests/places", "tests/testing"),
    "tests/management/test_doctor.py",
    "tests/test_checks.py",
    "tests/test_operations.py",
    "tests/test_public_api.py",
    "tests/test_start_up.py",
    "tests/test_views.py",
]
# They measure, decide without a database, or have a server of one version.
LEFT_OUT = [
    "tests/admin/test_costs.py",
    "tests/testing/test_embedded.py",
    "tests/worker/claim/test_fair_share.py",
    "tests/worker/claim/test_poller_never_stalls.py",
]


def main(*arguments: str) -> int:
    chosen = CHOSEN
    if arguments[:1] == ("--short",):
        chosen, arguments = SHORT, arguments[1:]
    command = [sys.executable, "-m", "pytest", "-m", MARKS, *arguments]
    command += [f"--ignore={name}" for name in LEFT_OUT] + chosen
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
