"""A run that is begun again when it dies or hangs, by a supervisor of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from django_pgqueue.management.pipeline import supervise
from django_pgqueue.management.pipeline.supervise import Supervisor
from django_pgqueue.models import PipelineRun
from django_pgqueue.options.retry import Retry
from django_pgqueue.spark.stop_flag import StopFlag
from tests.harness.waiting import wait_for
from tests.harness.worker_process import REPOSITORY
from tests.pipeline.test_command import call, environment
from tests.pipeline.test_ingest import ids
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


def test_after_too_many_failures_in_a_row_it_gives_up(follow):
    """With the reason of the last one."""
    status, told = follow(*["fail"] * 9, restarts=2)

    assert 1 == status
    assert 3 == len(rows())
    assert (
        "follow_a_plan gives up: 3 runs have failed in a row. The last one: "
        "ValueError: It was planned." == told[-1]
    )


def test_a_run_that_is_refused_or_stopped_is_not_begun_again(follow):
    """A wrong option stays wrong; and whoever stops a run means it."""
    assert (2, "") == call("run", "ingest", "--restarts", "9", "-o", "topic=x")
    assert (130, []) == follow("stop")

    (refused, why), stopped = rows()
    assert "failed" == refused
    assert "has no path" in why
    assert ("cancelled", None) == stopped


@pytest.mark.slow
def test_an_ingest_without_end_survives_its_driver(environment, publish, tmp_path):
    """kill -9 of the driver: the next run goes on, and each message is written once.
    SIGTERM ends both after the batch that is under way."""
    expected = publish(3)
    command = [sys.executable, "-m", "django", "pgqueue_pipeline", "run", "ingest"]
    command += ["--restarts", "9", "-o", "topic=orders", "-o", "trigger=1s"]
    running = PipelineRun.objects.filter(state="running")

    with (tmp_path / "log").open("wb") as log:
        supervisor = subprocess.Popen(
            [*command, "-o", f"path={tmp_path}/lake"],
            cwd=REPOSITORY,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        (tmp_path / "lake").mkdir()
        wait_for(lambda: ids(tmp_path / "lake") == expected, 120, "they are written")
        expected += publish(2)
        os.kill(running.get().pid, signal.SIGKILL)

        wait_for(lambda: ids(tmp_path / "lake") == expected, 120, "it has gone on")
        supervisor.terminate()
        assert 130 == supervisor.wait(90), (tmp_path / "log").read_text()
    finally:
        supervisor.kill()
        supervisor.wait()

    assert expected == ids(tmp_path / "lake")
    (state, error), *others = rows()
    assert "lost" == state
    assert error.endswith("ended with signal 9.")
    # On a machine that is very busy, Spark may fail to begin.
    assert ("cancelled", None) == others[-1]
