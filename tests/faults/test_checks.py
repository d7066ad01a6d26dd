"""What a row demands besides what always holds, on books that are made up."""

from __future__ import annotations

import pytest

from tests.faults.checks import leases_are_free_soon, nothing_runs_beside_itself
from tests.faults.evidence import Evidence, Harm, Run
from tests.faults.history import Change, Row
from tests.faults.verdict import Lease, Verdict


def run(delivery, pid, started_at, **ended):
    return Run(job=1, delivery=delivery, pid=pid, started_at=started_at, **ended)


@pytest.mark.parametrize(
    "first, second, expected",
    [
        (run(1, 7, 0.0, ended_at=5.0), run(2, 7, 3.0), 1),
        (run(1, 7, 0.0), run(2, 7, 3.0, ended_at=4.0), 1),
        (run(1, 7, 0.0, failed_at=5.0), run(2, 7, 5.0), 0),
        (run(1, 7, 0.0, ended_at=2.0), run(2, 7, 3.0), 0),
        (run(1, 7, 0.0, ended_at=5.0), run(2, 8, 3.0), 0),
    ],
    ids=["beside it", "it never ended", "after its failure", "after it", "elsewhere"],
)
def test_a_process_starts_no_job_that_it_still_runs(first, second, expected):
    """Another one may, when the lease has run out."""
    evidence = Evidence(runs={(1, 1): first, (1, 2): second})

    found = list(nothing_runs_beside_itself(evidence, None))

    assert expected == len(found)


@pytest.mark.parametrize(
    "due_at, claimed_at, expected",
    [(15.0, 20.0, 1), (6.0, 20.0, 0), (15.0, 31.0, 0)],
    ids=["due later", "due before", "claimed later"],
)
def test_what_is_due_later_than_a_lost_lease_goes_behind_it(
    due_at, claimed_at, expected
):
    """A backlog from before may keep it waiting, however long that takes."""
    lost = Lease(1, 1, "a", 0.5, 30.0, "lapsed", Row())
    other = Change(
        seq=1,
        at=claimed_at,
        transaction="1",
        job=2,
        key="op2.0",
        old=Row(visible_at=due_at),
        new=Row(visible_at=99.0, leased_by="b", leased_at=claimed_at, deliveries=1),
    )
    evidence = Evidence(
        pids={"a": 7},
        harms=[Harm("kill_group", "group", frozenset({7}), 1.0, 1.0)],
        changes=[other],
    )

    found = list(leases_are_free_soon(evidence, Verdict(leases={1: [lost]})))

    assert expected == len(found)
