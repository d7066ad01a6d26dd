"""A program with a fault, for the tests: the yardstick, except for one thing."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tests.benchmarks.agent.program import run
from tests.benchmarks.agent.tally import note
from tests.benchmarks.peers.yardstick import program

FAULT = "BENCHMARK_FAULT"
EVERY = 10


def losing(number: int) -> None:
    """Take the tenth job away without running it."""
    if number % EVERY:
        note(number)


def repeating(number: int) -> None:
    """Run the tenth job twice."""
    note(number)
    if not number % EVERY:
        note(number)


def ending(number: int) -> None:
    """End in the middle of a job."""
    os._exit(3)


FAULTS: dict[str, Callable[[int], None]] = {
    "losing": losing,
    "repeating": repeating,
    "ending": ending,
}


def work(options: dict[str, Any]) -> None:
    """Work as the yardstick does, with the fault."""
    program.note = FAULTS[os.environ[FAULT]]
    program.work(options)


if __name__ == "__main__":
    run(setup=program.setup, producer=program.Producer, work=work)
