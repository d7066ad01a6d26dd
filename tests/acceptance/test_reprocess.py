"""Dead letters that a rule means run again by themselves, and each only once."""

from __future__ import annotations

from datetime import timedelta

from django_pgqueue.models import ArchivedJob, DeadLetter
from tests.harness.factories import make_dead_letter
from tests.harness.waiting import wait_for


def test_what_succeeds_is_done_and_what_fails_again_is_left_to_people(start_worker):
    """By the worker that leads, without anybody's command."""
    hour_ago = {"finished_at": -timedelta(hours=1), "max_attempts": 1}
    mended = make_dead_letter(task="tests.app.tasks.noop", **hour_ago)
    broken = make_dead_letter(task="tests.app.tasks.fails", **hour_ago)
    other = make_dead_letter(
        task="tests.app.tasks.noop", reason="rejected", finished_at=-timedelta(hours=1)
    )
    start_worker(pgqueue={"REPROCESS": [{"reason": "exhausted"}]})

    wait_for(
        lambda: DeadLetter.objects.filter(
            pk=broken.pk, headers__has_key="pgqueue.reprocessed_at"
        ).exists(),
        what="it fails again",
    )
    wait_for(
        lambda: ArchivedJob.objects.filter(pk=mended.pk, state="succeeded").exists(),
        what="it succeeds",
    )
    assert DeadLetter.objects.filter(pk=other.pk).exists()
