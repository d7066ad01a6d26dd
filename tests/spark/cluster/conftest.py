"""A cluster for the tests of this folder, and a driver that is told what to do."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from tests.spark.cluster.cluster import KEPT, Cluster
from tests.spark.conftest import PASSWORD, ROOT, quick_start, require, without_django

ANSWER_SECONDS_MAX = 120.0

QUICK = "-XX:TieredStopAtLevel=1"

# What a task fails with: nobody is there, and no libpq can read it.
UNREACHABLE = make_conninfo(
    host="127.0.0.1", port=1, dbname="shop", user="reader", password=PASSWORD
)
UNREADABLE = f"postgresql://reader:{PASSWORD}@[::1/shop"


class Driver:
    """Another process, which has the session."""

    def __init__(self, environ: dict[str, str], log: Path) -> None:
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.cluster.driver"],
                env=environ,
                cwd=log.parent,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._log = log
        self._answers: queue.Queue[list[Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, name: str, *arguments: Any) -> None:
        """Call a function of driver.py."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps([name, arguments])}\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """Return what the call returns; fail with its error."""
        how, told = self._answer()
        assert "done" == how, told
        return told

    def error(self) -> str:
        """Return the traceback of the call, which must fail."""
        how, told = self._answer()
        assert "failed" == how, told
        return str(told)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of driver.py, and return what it returns."""
        self.start(name, *arguments)
        return self.answer()

    def end(self) -> None:
        """Let it stop its session, and end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join()
            self.process.stdout.close()

    def _answer(self) -> list[Any]:
        answer = self._answers.get(timeout=ANSWER_SECONDS_MAX)
        assert answer is not None, self._log.read_text(errors="replace")
        return answer

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("answer "):
                self._answers.put(json.loads(line.removeprefix("answer ")))
        self._answers.put(None)


@pytest.fixture(scope="package")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the cluster and the driver leave logs, events and files."""
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="package")
def python_path(place: Path) -> str:
    """Where a process of Spark finds this package, and no Django."""
    first = without_django(place / "without_django")
    path = [first, ROOT, ROOT / "django_pgqueue/spark/toplevel"]
    return os.pathsep.join(map(str, path))


@pytest.fixture(scope="package")
def cluster(dsn: str, place: Path, python_path: str) -> Iterator[Cluster]:
    """A master and two workers, whose environment has the DSN."""
    require("pyspark", "pyarrow", "adbc_driver_postgresql")
    environ = {
        "PYTHONPATH": python_path,
        "PYSPARK_PYTHON": sys.executable,
        "PGQUEUE_DSN": dsn,
        "UNREACHABLE": UNREACHABLE,
        "UNREADABLE": UNREADABLE,
    }
    with Cluster(place, environ, QUICK) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def driver(
    cluster: Cluster,
    dsn: str,
    place: Path,
    python_path: str,
    request: pytest.FixtureRequest,
) -> Iterator[Driver]:
    """A driver of the cluster; what fails on executors only, it has right."""
    from pyspark import __version__

    events = place / "events"
    events.mkdir()
    quick = quick_start(request.config.cache.mkdir("spark"), __version__)
    (place / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\n"
        f"spark.eventLog.compress false\n"
        f"spark.eventLog.dir file://{events}\n"
        f"spark.ui.port 0\n"
        f"spark.driver.host 127.0.0.1\n"
        f"spark.driver.extraJavaOptions {quick}\n"
        f"spark.executor.memory 512m\n"
        f"spark.executor.extraJavaOptions {QUICK}\n"
        f"spark.task.maxFailures 2\n"
        f"spark.sql.shuffle.partitions 2\n"
        f"spark.sql.warehouse.dir {place / 'warehouse'}\n"
    )
    environ = {
        **{key: os.environ[key] for key in KEPT if key in os.environ},
        "PYTHONPATH": python_path,
        "PGQUEUE_DSN": dsn,
        "UNREACHABLE": dsn,
        "UNREADABLE": dsn,
        "SPARK_MASTER": cluster.url,
        "SPARK_CONF_DIR": str(place),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    driver = Driver(environ, place / "driver.log")
    yield driver
    driver.end()
