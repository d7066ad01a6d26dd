"""
start: what every process pays for the app, and when a new worker ends its first job.

Each side is a Python of its own with a bare project: what a project imports itself
would be in both figures.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from django.db import connections

from django_pgqueue.management.bench import gauges, tasks
from django_pgqueue.management.bench.measure import (
    Measure,
    Opener,
    Pair,
    Plan,
    Run,
    Sides,
    at_most,
)
from django_pgqueue.management.bench.place import changed
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.worker import Worker

OURS = "django_pgqueue"
APPS = ("django.contrib.contenttypes", "django.contrib.auth")
ADMIN = ("django.contrib.admin", "django.contrib.messages", "django.contrib.sessions")
SETTINGS = "django_pgqueue.management.bench.bare_settings"

# What it adds to django.setup(), of the processor's time; and how much later than
# Django alone a worker has done a job, by the clock.
ADDS, ADDS_TO_ADMIN, FIRST_JOB = "adds", "adds_to_admin", "first_job_after"


class SetUp:
    """Product: django.setup() with the app. The other side: without."""

    def __init__(
        self, scratch: Scratch, compiled: str, *, apps: Sequence[str], figure: str
    ) -> None:
        self._scratch = scratch
        self._compiled = compiled
        self._apps = apps
        self._figure = figure

    def pair(self, jobs: int) -> Pair:
        """Return milliseconds of processor time."""
        ours, bare = self._milliseconds(OURS), self._milliseconds()
        return Pair(Run([ours], {self._figure: ours - bare}), Run([bare]))

    def _milliseconds(self, *more: str) -> float:
        with bare_project(self._scratch, [*self._apps, *more], self._compiled):
            before = _children_seconds()
            _set_up()
            return (_children_seconds() - before) * 1_000


class FirstJob:
    """Product: from exec of a worker to the end of a job. The other side: setup()."""

    def __init__(self, scratch: Scratch, compiled: str) -> None:
        self._scratch = scratch
        self._compiled = compiled

    def pair(self, jobs: int) -> Pair:
        """Return milliseconds by the clock."""
        job = tasks.immediate.delay(**tasks.payloads(1)[0])
        with bare_project(self._scratch, [*APPS, OURS], self._compiled):
            began = time.monotonic()
            with Worker(self._scratch, threads=8) as worker:
                worker.wait_while(
                    lambda: not gauges.succeeded(worker.cursor, job.id, job.id)
                )
                ours = (time.monotonic() - began) * 1_000
        with bare_project(self._scratch, APPS, self._compiled):
            began = time.monotonic()
            _set_up()
            bare = (time.monotonic() - began) * 1_000
        return Pair(Run([ours], {FIRST_JOB: ours - bare}), Run([bare]))


@contextmanager
def bare_project(
    scratch: Scratch, apps: Sequence[str], compiled: str
) -> Iterator[None]:
    """
    Let processes that are started in the block have these apps alone.

    Args:
        scratch: Where their database is.
        apps: INSTALLED_APPS.
        compiled: A folder for compiled modules.
    """
    database = connections.settings[scratch.alias]
    told = {"apps": list(apps), "database": database}
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": SETTINGS,
        "PGQUEUE_BENCH_PROJECT": json.dumps(told, default=str),
        "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path),
        # As where a package is installed: its modules are compiled.
        "PYTHONPYCACHEPREFIX": compiled,
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with changed(os, "environ", environment):
        yield


def _set_up() -> None:
    command = [sys.executable, "-c", "import django; django.setup()"]
    subprocess.run(command, env=os.environ, check=True)  # noqa: S603  # Our words.


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _opener(make: Callable[[Scratch, str], Sides]) -> Opener:
    @contextmanager
    def opened(scratch: Scratch, plan: Plan) -> Iterator[Sides]:
        with tempfile.TemporaryDirectory(prefix="pgqueue-bench-") as compiled:
            yield make(scratch, compiled)

    return opened


def _parts() -> Mapping[str, Opener]:
    return {
        "setup": _opener(partial(SetUp, apps=APPS, figure=ADDS)),
        "admin": _opener(partial(SetUp, apps=[*APPS, *ADMIN], figure=ADDS_TO_ADMIN)),
        "first_job": _opener(FirstJob),
    }


START = Measure(
    name="start",
    what="django.setup() with the app, with the admin too, and a worker's first job",
    unit="ms",
    jobs=0,
    goals=(
        at_most(ADDS, 100, "ms"),
        at_most(ADDS_TO_ADMIN, 250, "ms"),
        at_most(FIRST_JOB, 500, "ms"),
    ),
    baseline="django.setup() without the app",
    other_side="without the app",
    parts=_parts(),
    warm_up_jobs=1,
)
