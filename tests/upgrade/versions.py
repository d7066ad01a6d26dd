"""Two versions of the package, each with processes of its own on one database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Self

import pytest

from tests.harness import ledger
from tests.harness.waiting import wait_for

ROOT = Path(__file__).parents[2]
TREES = ["django_pgqueue", "tests"]

SETTINGS = """
import json, os

SECRET_KEY = "none"
DATABASES = {"default": json.loads(os.environ["PGQUEUE_TEST_DATABASE"])}
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django_pgqueue",
    "tests.app",
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
PGQUEUE = {"TASK_MODULES": ["tasks", "crash_tasks", "lane_tasks"]}
"""

# A web server: for each line that it reads it enqueues so many of each, and prints ids.
WEB = """
import json, sys
import django
django.setup()
from django.db import transaction
from django_pgqueue import publish
from tests.app import crash_tasks, lane_tasks, tasks

print(flush=True)
for line in sys.stdin:
    count = int(line)
    ids = [crash_tasks.record.delay().id for _ in range(count)]
    with transaction.atomic():
        ids += [each.id for each in crash_tasks.record.bulk([{}] * count)]
        ids += [lane_tasks.step.delay("c", number).id for number in range(count)]
        publish("orders.paid", {"count": count})
    tasks.once.delay()
    print(json.dumps(ids), flush=True)
"""


def last_release() -> str:
    """
    Return the newest tag of a release before this version; skip without one.

    A shallow clone fetches its history and tags first.
    """
    if _git("rev-parse", "--is-shallow-repository").strip() == "true":
        _git("fetch", "--quiet", "--unshallow", "--tags")
    tag = _git("describe", "--tags", "--abbrev=0", "--match=v*", "HEAD^")
    if not tag:
        pytest.skip("nothing has been released yet, so there is nothing to upgrade")
    return tag.strip()


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else ""


def unpack(commit: str, folder: Path) -> None:
    """Write what a version needs to run as it was in *commit*."""
    packed = subprocess.run(
        ["git", "archive", "--format=tar", commit, *TREES],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as file:
        file.extractall(folder, filter="data")


class Version:
    """
    The package in *tree*; what it starts ends with ``with``.

    Args:
        tree: The folder that holds it, and tests/app.
        folder: For its settings and the output of its processes.
        database: An entry of DATABASES.
        the_ledger: Where its tasks write.
    """

    def __init__(
        self, tree: Path, folder: Path, database: dict[str, Any], the_ledger: Path
    ) -> None:
        self._tree = tree
        folder.mkdir()
        (folder / "upgrade_settings.py").write_text(SETTINGS)
        self._folder = folder
        self._environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "upgrade_settings",
            "PGQUEUE_TEST_DATABASE": json.dumps(database),
            "PYTHONPATH": os.pathsep.join([str(tree), str(folder)]),
            ledger.PATH: str(the_ledger),
        }
        self._started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        for process in self._started:
            process.kill()
            process.communicate(timeout=20)  # Which closes its pipes.

    def migrations(self) -> set[str]:
        """Return the names of the migrations that it has."""
        folder = self._tree / "django_pgqueue" / "migrations"
        return {path.stem for path in folder.glob("0*.py")}

    def migrate(self) -> None:
        """Run `manage.py migrate`."""
        self.manage("migrate", "-v0", "--run-syncdb")

    def manage(self, *arguments: str, status: int = 0) -> str:
        """Run a command to its end, and return what it has printed."""
        done = subprocess.run(
            [sys.executable, "-m", "django", *arguments],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        told = done.stdout + done.stderr
        assert status == done.returncode, told
        return told

    def start_worker(self) -> Worker:
        """Start `pgqueue_worker`; return once it takes jobs."""
        log = self._folder / "worker.log"
        with log.open("w") as output:
            process = self._start(
                ["-m", "django", "pgqueue_worker", "--threads=4"], output, output
            )
        worker = Worker(process, log)

        def has_started() -> bool:
            assert process.poll() is None, log.read_text()
            return bool(worker.lines("started    worker="))

        wait_for(has_started, 40, "a worker has started")
        return worker

    def start_web(self) -> Web:
        """Start a process that enqueues when it is told to."""
        return Web(self._start(["-c", WEB], subprocess.PIPE, subprocess.PIPE))

    def _start(
        self, arguments: Sequence[str], stdin: Any, stdout: Any
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self._folder,
            env=self._environment,
            stdin=stdin if stdin == subprocess.PIPE else subprocess.DEVNULL,
            stdout=stdout,
            stderr=None if stdout == subprocess.PIPE else subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process


class Worker:
    """A supervisor and its output."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def lines(self, text: str) -> list[str]:
        """Return the lines with *text* in them."""
        return [line for line in self._log.read_text().splitlines() if text in line]

    def stop(self) -> int:
        """Stop it as a deploy does; return its status."""
        self._process.terminate()
        return self._process.wait(40)


class Web:
    """What enqueues."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        process.stdout.readline()

    def enqueue(self, count: int) -> list[int]:
        """Enqueue *count* jobs in each of several ways; return their ids."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the web server has ended"
        ids: list[int] = json.loads(line)
        return ids
