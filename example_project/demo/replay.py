"""
Replay: the counts of the subscriptions are lost, and are made again from the log.

The messages are still there, so their receivers get them once more; then the numbers
must be the same as before.
"""

from __future__ import annotations

import time

from example_project.demo.progress import line
from example_project.demo.tally import read_tally

REPLAY_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.2


def replay() -> list[str]:
    """Lose the counts, replay, and return a sentence for each number that differs."""
    from counters.models import MailCount
    from counters.tasks import count_failed, count_sent
    from django.db import transaction
    from postoffice.events import mails

    from django_pgqueue.models import Job

    began = time.monotonic()
    with line() as shown:
        # A message whose job is still to come would count by that and by the replay.
        while Job.objects.filter(queue="counters").exists():
            seconds = time.monotonic() - began
            shown.update("replay: messages are still being counted", seconds)
            if seconds > REPLAY_SECONDS_MAX:
                break
            time.sleep(LOOK_SECONDS)
        with transaction.atomic():
            MailCount.objects.all().delete()
            replays = [
                mails.replay(
                    to=receiver, since="earliest", reason="the counts are gone"
                )
                for receiver in (count_sent, count_failed)
            ]
        while True:
            counts = read_tally()
            done = sum(each.progress().done for each in replays)
            seconds = time.monotonic() - began
            shown.update(f"replay: {done} messages have a job again", seconds)
            if not counts.findings() or seconds > REPLAY_SECONDS_MAX:
                break
            time.sleep(LOOK_SECONDS)
    counted = counts.by_jobs
    print(
        f"replay: the counts were deleted and made again from the log in "
        f"{seconds:.1f} s: {counted['sent']} + {counted['failed']}",
        flush=True,
    )
    return counts.findings()
