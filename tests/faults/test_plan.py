"""The plan: drawn from the seed alone."""

from __future__ import annotations

import pytest

from tests.faults.rows import ROWS, Run


@pytest.mark.parametrize("name", ROWS)
def test_the_same_seed_gives_the_same_plan(name):
    """Faults, victims, operations: a seed is all that a failure needs to tell."""
    first, again = (Run.of(name, seed=7, share=0.1) for _ in range(2))

    assert first.faults() == again.faults()
    assert list(first.operations(0)) == list(again.operations(0))


@pytest.mark.parametrize("name", ROWS)
def test_another_seed_gives_other_operations(name):
    """Else every run would try the same."""
    first, other = (Run.of(name, seed=seed, share=0.1) for seed in (7, 8))

    assert list(first.operations(0)) != list(other.operations(0))


@pytest.mark.parametrize("share", [0.1, 1.0])
@pytest.mark.parametrize("name", ROWS)
def test_a_plan_has_the_size_that_its_row_asks_for(name, share):
    """Jobs and faults of a tenth are a tenth, rounded up, and all within the phase."""
    run = Run.of(name, seed=7, share=share)
    load, row = run.row.load, run.row
    jobs = sum(
        len([key for key, kwargs in operation.jobs if "seconds" in kwargs])
        for client in range(load.clients)
        for operation in run.operations(client)
    )
    wanted = sum(
        series.count
        if series.is_scaled
        else max(series.count_min, -int(-series.count * share // 1))
        for series in row.series
    )

    assert load.jobs * share == pytest.approx(jobs, abs=load.clients)
    assert wanted == len(run.faults())
    assert all(0 <= fault.at <= run.seconds for fault in run.faults())


def test_each_kind_of_poison_is_in_the_smallest_run():
    """A tenth has fewer good jobs, and not fewer kinds."""
    from tests.faults.poison import KINDS

    run = Run.of("X1", seed=1, share=0.01)
    found = {
        kwargs["how"]
        for client in range(2)
        for operation in run.operations(client)
        for _, kwargs in operation.jobs
        if "how" in kwargs
    }

    assert set(KINDS) == found
