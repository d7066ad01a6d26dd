"""
A standalone cluster on loopback, from the programs in pyspark's wheel.

A master and its workers are processes of their own, in an environment that has no word
of Django. What a worker's environment has, its executors find, and nobody else.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.harness.process_tree import descendants, freeze, tell
from tests.harness.waiting import wait_for

LOOPBACK = "127.0.0.1"

START_SECONDS_MAX = 60.0

MASTER_AT = re.compile(r"Starting Spark master at (spark://\S+)")
REGISTERED = "Successfully registered with master"

# Of this process's environment, what a Java and a Python need to start.
KEPT = ("PATH", "HOME", "LANG", "JAVA_HOME", "TMPDIR")


class Node:
    """One master or worker."""

    def __init__(
        self,
        log: Path,
        arguments: list[str],
        environ: Mapping[str, str],
        java_options: str,
    ) -> None:
        import pyspark

        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    str(Path(pyspark.__file__).parent / "bin" / "spark-class"),
                    *arguments,
                ],
                env={
                    **{key: os.environ[key] for key in KEPT if key in os.environ},
                    **environ,
                    "SPARK_LOCAL_IP": LOOPBACK,
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": java_options,
                },
                cwd=log.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self) -> str:
        """Return its log; fail when it has ended by itself."""
        text = self._log.read_text(errors="replace")
        assert self.process.poll() is None, text
        return text

    def kill(self) -> None:
        """Kill it and all that it has started, as the loss of its machine would."""
        tell([*descendants(self.process.pid), self.process.pid], signal.SIGKILL)
        self.process.wait(30)

    def kill_beside_frozen(self) -> list[int]:
        """Freeze what it has started, and kill it alone; return what is frozen."""
        frozen = freeze(descendants(self.process.pid))
        self.process.kill()
        self.process.wait(30)
        return frozen


class Cluster:
    """
    A master and *count* workers of one core and 1 GB each.

    Args:
        folder: For logs, and what executors leave.
        environ: What the workers find.
        java_options: Of the master and the workers, not of executors.
        count: How many workers.
    """

    def __init__(
        self,
        folder: Path,
        environ: Mapping[str, str],
        java_options: str,
        count: int = 2,
    ) -> None:
        self.folder = folder
        self.workers: list[Node] = []
        self._environ = environ
        self._java_options = java_options
        self._count = count
        self._started = 0
        here = ["--host", LOOPBACK, "--port", "0", "--webui-port", "0"]
        self._master = Node(
            folder / "master.log",
            ["org.apache.spark.deploy.master.Master", *here],
            {},
            java_options,
        )
        self.url = wait_for(
            lambda: MASTER_AT.search(self._master.said()),
            START_SECONDS_MAX,
            "the master is up",
        )[1]
        self.complete()

    def complete(self) -> None:
        """Start workers in the place of those that were killed."""
        self.workers = [w for w in self.workers if w.process.poll() is None]
        new = [self._worker() for _ in range(self._count - len(self.workers))]
        self.workers += new
        for worker in new:
            wait_for(
                lambda worker=worker: REGISTERED in worker.said(),
                START_SECONDS_MAX,
                "a worker is registered",
            )

    def _worker(self) -> Node:
        self._started += 1
        name = f"worker-{self._started}"
        here = ["--host", LOOPBACK, "--webui-port", "0", "--cores", "1"]
        here += ["--memory", "1g", "--work-dir", str(self.folder / name)]
        return Node(
            self.folder / f"{name}.log",
            ["org.apache.spark.deploy.worker.Worker", *here, self.url],
            self._environ,
            self._java_options,
        )

    def of(self, pid: int) -> Node:
        """Return the worker that has started the process *pid*."""
        found = [w for w in self.workers if pid in descendants(w.process.pid)]
        assert len(found) == 1, f"process {pid} is of {len(found)} workers"
        return found[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node in (*self.workers, self._master):
            node.kill()
