"""What a row demands besides what always holds, on books that are made up."""

from __future__ import annotations

import pytest

from tests.faults.checks import nothing_runs_beside_itself
from tests.faults.evidence import Evidence, Run


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
