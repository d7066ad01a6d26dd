"""Turns: product, then yardstick, each on empty tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from django_pgqueue.management.bench.measure import Opener, Pair, Plan, Run, Sides
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.postgres import yardstick


class Turns(ABC):
    """Sides whose two runs have nothing in common but the number of jobs."""

    def __init__(self, scratch: Scratch) -> None:
        self.scratch = scratch

    def pair(self, jobs: int) -> Pair:
        """Measure the product, then the yardstick."""
        self.scratch.empty()
        product = self.product(jobs)
        self.scratch.empty()
        return Pair(product, self.yardstick(jobs))

    @abstractmethod
    def product(self, jobs: int) -> Run:
        """Measure the product."""

    @abstractmethod
    def yardstick(self, jobs: int) -> Run:
        """Measure what it is compared with."""


def beside_connection(
    make: Callable[[Scratch, yardstick.Connection], Sides],
) -> Mapping[str, Opener]:
    """Return the one part of a measure that needs a plain connection and no worker."""

    @contextmanager
    def opened(scratch: Scratch, plan: Plan) -> Iterator[Sides]:
        with scratch.connect() as connection:
            yield make(scratch, connection)

    return {"": opened}
