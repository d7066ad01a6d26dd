"""
What a killed process repeats, by settle strength: a few kills of each.

`make faults ARGS=--windows` does it with two hundred.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.faults.build import REPOSITORY
from tests.faults.windows.broken import BUILDS
from tests.faults.windows.command import Bench
from tests.faults.windows.measure import Case, Window
from tests.harness import seeds

KILLS = 3
LANES = 4

EACH = [
    Case(strength="immediate", threads=16),
    Case(strength="batched", threads=16),
    Case(strength="atomic", threads=16),
]
AWAY = [
    Case(strength="batched", threads=16, hole=hole, hole_seconds=2.0)
    for hole in ("", "pgqueue settler")
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.seed(seeds.FAULTS),
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The package as it is, and a place for what is made of it."""
    folder = tmp_path_factory.mktemp("windows")
    return Bench(REPOSITORY / "django_pgqueue", folder, seeds.seed(seeds.FAULTS))


def measure_all(
    measures: Iterable[Callable[[int], Window]], kills: int = KILLS
) -> list[Window]:
    """Measure all of it at once: a measure waits more than it works."""
    with ThreadPoolExecutor(LANES) as pool:
        return list(pool.map(lambda measure: measure(kills), measures))


def violations(windows: Iterable[Window]) -> dict[str, dict[str, str]]:
    """Return what must not be, by case, where there is any."""
    return {
        str(window.case): window.violations for window in windows if window.violations
    }


def test_a_killed_process_repeats_no_more_than_its_strength_allows(bench):
    """Nothing is lost; each job ends once; an atomic one has written its row once."""
    windows = measure_all(partial(bench.measure, case) for case in EACH)

    assert {} == violations(windows)
    assert {KILLS} == {len(window.kills) for window in windows}


def test_what_has_ended_does_not_gather_while_it_cannot_be_written(bench):
    """With the database away, or the settler's connection alone."""
    windows = measure_all((partial(bench.measure, case) for case in AWAY), kills=1)

    assert {} == violations(windows)


def test_builds_that_repeat_more_are_found_out(bench):
    """A measure that nothing can make red proves nothing."""
    usual, *broken = measure_all(
        [
            partial(bench.measure, BUILDS["acks-late"].case),
            *(partial(bench.measure_broken, name) for name in BUILDS),
        ]
    )
    windows = dict(zip(BUILDS, broken, strict=True))

    assert {} == usual.violations
    # Nothing but more of them.
    assert {} == windows["acks-late"].violations
    # Other bounds may break as well.
    assert "over" in windows["acks-unawaited"].violations
    assert "twice" in windows["acks-apart"].violations
    assert 3 * max(median(usual), 4) < median(windows["acks-late"])


def median(window: Window) -> float:
    """Return the median of what its kills repeat."""
    return statistics.median(window.repeats)
