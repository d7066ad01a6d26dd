"""
A third of the fault matrix at a tenth of its size, and of the broken builds.

The seed, which differs from commit to commit, decides which third.
`make faults ARGS=--tenth` runs all of them.

Besides, what a killed process repeats, by settle strength: a few kills of each.
`make faults ARGS=--windows` does that with two hundred.

All are started with the first test, several at a time, and each test waits for its own:
most of a run is waiting for leases, poll intervals and servers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from tests.faults import report
from tests.faults.broken import BUILDS
from tests.faults.build import REPOSITORY
from tests.faults.command import Order, runs
from tests.faults.rows import ROWS, Run
from tests.faults.windows.measure import BACKLOG
from tests.harness import seeds

# More than cores: a run waits more than it works. Fewer beside other tests.
LANES_DEFAULT = "3" if "PYTEST_XDIST_WORKER" in os.environ else "5"
LANES = int(os.environ.get("PGQUEUE_FAULTS_LANES", LANES_DEFAULT))

# Of a worker process, for each settle strength.
KILLS = 3

# For all of them, since the last one waits for the others.
TIMEOUT_SECONDS = 1_500

pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.seed(seeds.FAULTS),
    pytest.mark.timeout(TIMEOUT_SECONDS),
]

SHARE = 0.1
SEED = seeds.seed(seeds.FAULTS)
ROWS_OF_SEED = list(ROWS)[SEED % 3 :: 3]
BUILDS_OF_SEED = list(BUILDS)[SEED % 3 :: 3]

Reports = dict[str, Future[dict[str, Any]]]


@pytest.fixture(scope="module")
def reports(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reports]:
    """The reports to come, by parameter, of the tests that were selected."""
    order = Order(
        seed=SEED,
        share=SHARE,
        package=REPOSITORY / "django_pgqueue",
        folder=tmp_path_factory.mktemp("faults"),
    )
    # The longest first, so that no lane is idle while others have several to run.
    selected: list[str] = [
        str(item.callspec.params["name"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and hasattr(item, "callspec")
    ]
    with runs(order, LANES) as started:

        def start(name: str) -> Future[dict[str, Any]]:
            if name in BACKLOG:
                return started.windows(name, KILLS)
            return started.row(name) if name in ROWS else started.broken(name)

        yield {
            name: start(name) for name in sorted(selected, key=seconds_of, reverse=True)
        }


def seconds_of(name: str) -> float:
    """Return how long a row has faults; infinity for builds, which may be retried."""
    return Run.of(name, seed=SEED, share=SHARE).seconds if name in ROWS else math.inf


@pytest.mark.parametrize("name", BACKLOG)
def test_a_killed_process_repeats_no_more_than_its_strength_allows(name, reports):
    """Nothing is lost; each job ends once; an atomic one has written its row once."""
    window = reports[name].result()

    assert [] == window["violations"]
    assert KILLS == window["kills"]


@pytest.mark.parametrize("name", ROWS_OF_SEED)
def test_the_promise_holds_under(name, reports):
    """Nothing is lost, repeated without reason or left over; the faults were felt."""
    found = reports[name].result()

    assert "broken" not in found, found["broken"]
    assert found["valid"], "\n".join([report.line(found), *report.problems(found)])


@pytest.mark.parametrize("name", BUILDS_OF_SEED)
def test_a_build_without_a_protection_is_found_out(name, reports):
    """A checker that nothing can make red proves nothing."""
    found = reports[name].result()

    assert "broken" not in found, found["broken"]
    assert found["found_by"], "\n".join([report.line(found), *report.problems(found)])
