"""
Pipeline: an act in which jobs digest what the queue has done, the last on Spark.

Spark is large, so it is installed while mails flow, and only where it is missing. What
goes wrong here says nothing about the mails: it is told in a line, and the
demonstration ends with a status of its own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

from example_project.demo.extra import missing, name_of, requirements_of_spark
from example_project.demo.processes import Processes
from example_project.demo.progress import line

JOBS = ("metrics", "failures", "ingest")

# What pip fetches and how long it takes, for whoever waits.
COST = "456 MB, about a minute"

INSTALL_SECONDS_MAX = 600.0
JOB_SECONDS_MAX = 300.0
LOOK_SECONDS = 0.2

# Of an error that is shown; all of it is in the log.
ERROR_CHARACTERS_MAX = 500

# Mails come first, also to the processor.
NICENESS = 10

# Where the jobs would else look first for their database.
NOT_ANOTHER = {"PGQUEUE_DSN": ""}

# What pip says last of an error, and in one line.
PIP_ERROR = re.compile(r"^ERROR: (.+)$", re.MULTILINE)


class PipelineFailed(Exception):
    """The pipeline did not get through; the mails have nothing to do with it."""


class Pipeline:
    """The extra, which is installed beside the mails; then the pipeline's jobs."""

    def __init__(
        self,
        processes: Processes,
        files: Path,
        requirements: Sequence[str] | None = None,
    ) -> None:
        """
        Args:
            processes: Those of the demonstration.
            files: The folder that the log is ingested into.
            requirements: What is installed, as pip reads it; None: what Spark needs.
        """
        if requirements is None:
            requirements = requirements_of_spark()
        self._processes = processes
        self._missing = missing(requirements)
        self._options = {"ingest": ["-o", "topic=mail", "-o", f"path={files}"]}

    def introduction(self) -> str:
        """Return what is going to happen."""
        told = f"{', '.join(JOBS)} over this run, the last on Spark"
        if self._missing:
            names = ", ".join(map(name_of, self._missing))
            told += f"\n            pip installs {names} meanwhile: {COST}"
        return told

    def prepare(self) -> None:
        """Begin to install what is missing; returns at once."""
        if self._missing:
            module = ["-m", "example_project.demo.extra", *self._missing]
            self._processes.start("pip", module, ends=True, niceness=NICENESS)

    def run(self) -> None:
        """
        Wait for what is being installed, and run the jobs one after the other.

        Raises:
            PipelineFailed: Something of it did not work.
        """
        if self._missing:
            self._wait_for_pip()
        for job in JOBS:
            self._run(job)

    def _wait_for_pip(self) -> None:
        began = time.monotonic()
        with line() as shown:
            while (status := self._processes.ended("pip")) is None:
                waited = time.monotonic() - began
                shown.update(f"pip installs {COST}", waited)
                if waited > INSTALL_SECONDS_MAX:
                    raise PipelineFailed(
                        f"pip is not done after {INSTALL_SECONDS_MAX:.0f} s."
                    )
                time.sleep(LOOK_SECONDS)
        if status != 0:
            errors = PIP_ERROR.findall(self._processes.said("pip"))
            why = errors[-1] if errors else f"status {status}."
            raise PipelineFailed(f"pip cannot install the extra [spark]: {why}")

    def _run(self, job: str) -> None:
        """Run one job, and show the latest line that it says of itself."""
        name = f"pipeline-{job}"
        command = ["pgqueue_pipeline", "run", job, "--asked-by", "demo"]
        command += self._options.get(job, [])
        self._processes.manage(name, *command, ends=True, **NOT_ANOTHER)
        of_job = re.compile(rf"^{job}: .+$", re.MULTILINE)
        began = time.monotonic()
        with line() as shown:
            while True:
                status = self._processes.ended(name)
                told = of_job.findall(self._processes.said(name))
                latest = told[-1] if told else f"{job}: starting"
                if status is not None:
                    break
                seconds = time.monotonic() - began
                shown.update(latest, seconds)
                if seconds > JOB_SECONDS_MAX:
                    raise PipelineFailed(f"{latest}, not done after {seconds:.0f} s.")
                time.sleep(LOOK_SECONDS)
        if status != 0:
            # Below the line of the job stands its error.
            _, _, error = self._processes.said(name).rpartition(latest)
            why = " ".join(error.split()) or f"Its status is {status}."
            raise PipelineFailed(f"{latest} {why}"[:ERROR_CHARACTERS_MAX])
        print(latest, flush=True)
