"""Processes: the producer and the workers of a peer, and what they have run."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.benchmarks import cpu
from tests.benchmarks.agent.tally import FOLDER
from tests.benchmarks.environments import REPOSITORY, Environment

ANSWER_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 15.0
LOG_CHARACTERS_SHOWN = 1_500

PR_SET_PDEATHSIG = 1

PAIR = struct.Struct("QQ")  # As agent/tally.py and node/tally.mjs write it.


def say(line: str) -> None:
    """Print a line of progress."""
    with contextlib.suppress(BrokenPipeError):
        print(line, file=sys.stderr, flush=True)  # noqa: T201


class FailedError(Exception):
    """A turn cannot be finished, or what it did is wrong; the text says why."""


class Program:
    """A process of a peer, the leader of a session, with its log."""

    def __init__(
        self,
        environment: Environment,
        *words: str,
        log: Path,
        variables: Mapping[str, str],
        pipes: int | None = None,
    ) -> None:
        self._log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*environment.command, *words],
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": "", **variables},
                stdin=pipes or subprocess.DEVNULL,
                stdout=pipes or output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509  # No threads here.
            )

    def stop(self) -> None:
        """End it as an operator does; after a while, with all that is left of it."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS_MAX)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def check(self) -> None:
        """Raise FailedError if it has ended."""
        if self.process.poll() is not None:
            raise self.failed(f"ended with {self.process.returncode}")

    def failed(self, how: str) -> FailedError:
        """Return an error that shows the end of the log."""
        said = self._log.read_text(errors="replace")[-LOG_CHARACTERS_SHOWN:]
        return FailedError(f"{self._log.stem} {how}. It said:\n{said}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.stop()


class Producer(Program):
    """A process that enqueues when told to."""

    def __init__(
        self, environment: Environment, *, log: Path, variables: Mapping[str, str]
    ) -> None:
        super().__init__(
            environment,
            "produce",
            log=log,
            variables=variables,
            pipes=subprocess.PIPE,
        )

    def order(
        self, do: str, first: int, count: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """
        Let it enqueue jobs *first* to *first* + *count* - 1.

        Returns:
            ``seconds`` that it took, and ``clock``: nanoseconds, see agent/program.py.
        """
        self.ask(do, first, count, options)
        return self.answer()

    def ask(self, do: str, first: int, count: int, options: Mapping[str, Any]) -> None:
        """Order the same, and do not wait for the answer."""
        told = {"do": do, "first": first, "count": count, "options": options}
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(told).encode() + b"\n")
            self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Wait for the answer to the last order."""
        taken = self.process.stdout
        assert taken is not None
        ready, _, _ = select.select([taken], [], [], ANSWER_SECONDS_MAX)
        line = taken.readline() if ready else b""
        if not line:
            raise self.failed("did not answer")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Worker(Program):
    """A process that runs jobs, with all the children that it may have."""

    def __init__(
        self,
        environment: Environment,
        options: Mapping[str, Any],
        *,
        log: Path,
        variables: Mapping[str, str],
    ) -> None:
        self._tallies = log.with_suffix(".tallies")
        self._tallies.mkdir()
        super().__init__(
            environment,
            "work",
            json.dumps(options),
            log=log,
            variables={**variables, FOLDER: str(self._tallies)},
        )

    def count(self) -> int:
        """Return how many jobs have run."""
        return sum(_count(path) for path in self._tallies.iterdir())

    def ran(self) -> list[tuple[int, int]]:
        """Return the number of every job that ran, and when: nanoseconds."""
        pairs: list[tuple[int, int]] = []
        for path in self._tallies.iterdir():
            data = path.read_bytes()[: _count(path) * PAIR.size]
            pairs += PAIR.iter_unpack(data)
        return pairs

    def started_at(self, number: int) -> int | None:
        """Return when this job ran, if it is the last one that did."""
        for path in self._tallies.iterdir():
            count = _count(path)
            if count:
                last, at = _pair(path, count - 1)
                if last == number:
                    return at
        return None

    def cpu_seconds(self) -> float:
        """Return the processor time of all its processes."""
        return cpu.of_session(self.process.pid)


def _end_with_parent() -> None:
    """Ask Linux for a SIGTERM when the command dies, however it does; see prctl(2)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _count(path: Path) -> int:
    """Return how many pairs are written: those of a Python process end with zeros."""
    low, high = 0, path.stat().st_size // PAIR.size
    with path.open("rb", buffering=0) as file:
        while low < high:
            middle = (low + high) // 2
            if any(os.pread(file.fileno(), 8, middle * PAIR.size)):
                low = middle + 1
            else:
                high = middle
    return low


def _pair(path: Path, place: int) -> tuple[int, int]:
    with path.open("rb", buffering=0) as file:
        data = os.pread(file.fileno(), PAIR.size, place * PAIR.size)
    number, at = PAIR.unpack(data)
    return number, at
