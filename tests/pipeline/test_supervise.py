"""A run that is begun again when it dies or hangs, by a supervisor of its own."""

from __future__ import annotations

import pytest

from django_pgqueue.management.pipeline import supervise
from django_pgqueue.management.pipeline.supervise import Supervisor
from django_pgqueue.models import PipelineRun
from django_pgqueue.options.retry import Retry
from django_pgqueue.spark.running import StopFlag
from tests.pipeline.test_command import call, environment
from tests.spark.log.conftest import cursor, publish

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

__all__ = ["cursor", "environment", "publish"]


@pytest.fixture
def follow(environment, monkeypatch, tmp_path):
    """``follow("fail", "succeed")`` is the status, and what was told."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(supervise, "BACKOFF", Retry(base="10ms", cap="20ms"))
    folder = tmp_path / "plan"

    def follow(*plan, restarts=9, **changes):
        folder.mkdir(exist_ok=True)
        for place, what in enumerate(plan):
            (folder / f"{place}-{what}").touch()
        told = []
        supervisor = Supervisor(
            "follow_a_plan",
            {"folder": str(folder)},
            (),
            restarts=restarts,
            stop=StopFlag(),
            tell=told.append,
            **changes,
        )
        return supervisor.run(), told

    return follow


def rows():
    return list(PipelineRun.objects.order_by("id").values_list("state", "error"))


def test_a_run_that_dies_is_begun_again(follow):
    """Whether it fails, is killed, or is frozen until its lease is over; its row says
    why at once, and the next run waits for no lease."""
    status, told = follow("fail", "die", "freeze", "succeed")

    assert 0 == status
    failed, killed, frozen, last = rows()
    assert ("failed", "ValueError: It was planned.") == failed
    assert "lost" == killed[0] == frozen[0]
    assert killed[1].endswith("ended with signal 9.")
    assert frozen[1].endswith("lived, and its lease was over.")
    assert ("succeeded", None) == last
    assert [failed[1], killed[1], frozen[1]] == [
        line.partition(" in a row: ")[2] for line in told
    ]


def test_a_run_that_hangs_is_ended_and_begun_again(follow):
    """Its process beats; but it reads nothing, writes nothing and goes no round."""
    status, told = follow("hang", stuck_seconds=3, restarts=1_000)

    assert 0 == status
    assert "It was stuck: nothing of it had moved for " in told[0]
    assert ("lost", told[0].partition(" in a row: ")[2]) == rows()[0]


def test_a_run_that_is_refused_or_stopped_is_not_begun_again(follow):
    """A wrong option stays wrong; and whoever stops a run means it."""
    assert (2, "") == call("run", "ingest", "--restarts", "9", "-o", "topic=x")
    assert (130, []) == follow("stop")

    (refused, why), stopped = rows()
    assert "failed" == refused
    assert "has no path" in why
    assert ("cancelled", None) == stopped
