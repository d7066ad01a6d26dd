"""
A third of the fault matrix at a tenth of its size, and of the broken builds.

The seed, which differs from commit to commit, decides which third.
`make faults ARGS=--tenth` runs all of them.

All are started with the first test, several at a time, and each test waits for its own:
most of a run is waiting for leases, poll intervals and servers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from tests.faults import report
from tests.faults.broken import BUILDS
from tests.faults.build import REPOSITORY
from tests.faults.command import Order, runs
from tests.faults.rows import ROWS
from tests.harness import seeds

# More than cores: a run waits more than it works. Fewer beside other tests.
LANES_DEFAULT = "3" if "PYTEST_XDIST_WORKER" in os.environ else "5"
LANES = int(os.environ.get("PGQUEUE_FAULTS_LANES", LANES_DEFAULT))

# For all of them, since the last one waits for the others.
TIMEOUT_SECONDS = 1_500

pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.seed(seeds.FAULTS),
    pytest.mark.timeout(TIMEOUT_SECONDS),
]

SEED = seeds.seed(seeds.FAULTS)
ROWS_OF_SEED = list(ROWS)[SEED % 3 :: 3]
BUILDS_OF_SEED = list(BUILDS)[SEED % 3 :: 3]

Reports = dict[str, Future[dict[str, Any]]]


@pytest.fixture(scope="module")
def reports(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reports]:
    """The reports to come, by row or build, of the tests that were selected."""
    order = Order(
        seed=SEED,
        share=0.1,
        package=REPOSITORY / "django_pgqueue",
        folder=tmp_path_factory.mktemp("faults"),
    )
    # The long ones first, so that no lane is empty while others have one to run.
    selected: list[str] = [
        str(item.callspec.params["name"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and hasattr(item, "callspec")
    ]
    with runs(order, LANES) as started:
        yield {
            name: started.row(name) if name in ROWS else started.broken(name)
            for name in sorted(selected, key=lambda name: name not in ROWS)
        }


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
