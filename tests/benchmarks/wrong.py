"""A program with a fault, for the tests: the yardstick, which runs a job twice."""

from __future__ import annotations

from tests.benchmarks.agent.program import run
from tests.benchmarks.agent.tally import note
from tests.benchmarks.peers.yardstick import program


def repeating(number: int) -> None:
    """Run the tenth job twice."""
    note(number)
    if not number % 10:
        note(number)


if __name__ == "__main__":
    program.note = repeating
    run(setup=program.setup, producer=program.Producer, work=program.work)
