"""What processes cost before they do anything: to start, and to stand idle."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from functools import partial

from django_pgqueue.management import bench
from django_pgqueue.models import Worker as WorkerRow
from tests.benchmarks import cpu
from tests.benchmarks.environments import REPOSITORY
from tests.benchmarks.measure import Pair, PairRun, measure
from tests.benchmarks.measures import tasks
from tests.benchmarks.scratch import Scratch, payloads

Opening = Generator[PairRun, None, None]

IDLE = {"cpu_percent": 0.5, "queries_per_second": 2.0, "rss_mb": 80.0}

# A session tells the server's counters what it did after 10 s at the latest, so what
# it did at its start is told by then.
COUNTED_AFTER_SECONDS = 10.5

TRANSACTIONS = """
SELECT xact_commit + xact_rollback FROM pg_stat_database
 WHERE datname = current_database()
"""

OURS = "django_pgqueue"
ADMIN = "django.contrib.admin django.contrib.messages django.contrib.sessions"


def idle(scratch: Scratch) -> Opening:
    """The largest share of a goal of a worker that has nothing to do."""
    scratch.empty()
    with scratch.worker() as worker:
        worker.wait_while(lambda: not WorkerRow.objects.exists())
        time.sleep(min(COUNTED_AFTER_SECONDS, scratch.seconds))
        pids = [worker.pid, *WorkerRow.objects.values_list("pid", flat=True)]

        def pair(jobs: int) -> Pair:
            queries, used = worker.value(TRANSACTIONS), sum(map(cpu.of_threads, pids))
            started = time.monotonic()
            time.sleep(scratch.seconds)
            seconds = time.monotonic() - started
            used = sum(map(cpu.of_threads, pids)) - used
            # One of the queries was our own look.
            queries = max(worker.value(TRANSACTIONS) - queries - 1, 0)
            figures = {
                "cpu_percent": used / seconds * 100,
                "queries_per_second": queries / seconds,
                "rss_mb": max(map(cpu.resident_bytes, pids)) / 1e6,
            }
            worst = max(figures[name] / limit for name, limit in IDLE.items())
            return Pair(worst, 1.0, figures)

        yield pair


def set_up(scratch: Scratch, *, apps: str, figure: str) -> Opening:
    """Milliseconds of processor time of django.setup() with the app, and without."""
    with tempfile.TemporaryDirectory() as compiled:

        def milliseconds(more: str) -> float:
            before = _children_seconds()
            _set_up(f"{apps} {more}", compiled)
            return (_children_seconds() - before) * 1_000

        def pair(jobs: int) -> Pair:
            ours, bare = milliseconds(OURS), milliseconds("")
            return Pair(ours, bare, {figure: ours - bare})

        yield pair


def first_job(scratch: Scratch) -> Opening:
    """Milliseconds from exec of a worker to the end of a job; beside django.setup()."""
    with tempfile.TemporaryDirectory() as compiled:

        def pair(jobs: int) -> Pair:
            job = tasks.immediate.delay(**payloads(1)[0])
            began = time.monotonic()
            with scratch.worker(**_compiled(compiled)) as worker:
                worker.wait_while(
                    lambda: not worker.value(bench.SUCCEEDED, job.id, job.id)
                )
                ours = (time.monotonic() - began) * 1_000
            began = time.monotonic()
            _set_up("", compiled)
            bare = (time.monotonic() - began) * 1_000
            return Pair(ours, bare, {"first_job_after": ours - bare})

        yield pair


def _compiled(folder: str) -> dict[str, str]:
    # As where a package is installed: its modules are compiled.
    return {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}


def _set_up(apps: str, compiled: str) -> None:
    subprocess.run(
        [sys.executable, "-c", "import django; django.setup()"],
        cwd=REPOSITORY,
        env={**os.environ, **_compiled(compiled), "BENCHMARK_APPS": apps},
        check=True,
    )


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


measure(
    "idle",
    "one idle process with 8 threads: worst share of its three goals",
    "cpu_percent <= 0.5 %",
    "queries_per_second <= 2 /s",
    "rss_mb <= 80 MB",
    parts={"": idle},
    unit="goals",
    jobs=0,
    warm_up=0,
    beside="the goals themselves",
)
measure(
    "start",
    "django.setup() with the app, with the admin too, and a worker's first job",
    "adds <= 100 ms",
    "adds_to_admin <= 250 ms",
    "first_job_after <= 500 ms",
    parts={
        "setup": partial(set_up, apps="", figure="adds"),
        "admin": partial(set_up, apps=ADMIN, figure="adds_to_admin"),
        "first_job": first_job,
    },
    unit="ms",
    jobs=0,
    warm_up=1,
    beside="django.setup() without the app",
)
