"""Worker: what a worker's health port answers to /metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain

from django_pgqueue.extras import extra
from django_pgqueue.prometheus.families import of_fleet, of_worker
from django_pgqueue.prometheus.fleet import FLEET
from django_pgqueue.prometheus.text import answer
from django_pgqueue.worker.tally import Tally


def answer_of() -> Callable[[Tally, Mapping[str, int], str], tuple[str, bytes]]:
    """
    Return what makes content type and body of what the processes have done.

    Raises:
        MissingExtra: prometheus-client is not installed.
    """
    extra("prometheus_client")

    def metrics(
        tally: Tally, states: Mapping[str, int], accept: str
    ) -> tuple[str, bytes]:
        return answer(chain(of_worker(tally, states), of_fleet(FLEET.look())), accept)

    return metrics
