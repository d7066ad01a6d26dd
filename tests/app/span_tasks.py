"""Sample tasks of traces. A process that loads this may record its spans."""

from __future__ import annotations

import os

from django_pgqueue import Accumulate, Call, task, topic
from tests.app import tasks
from tests.harness import spans

if spans.PATH in os.environ:
    spans.record(at_once=False)


# Not in the line that raises: a traceback shows lines.
SECRET = "hunter2"


@task
def sends_on(name: str) -> None:
    """Enqueue a job, and publish a message."""
    tasks.noop.delay(name)
    topic("traced").publish({"name": name})


@task
async def sends_on_async(name: str) -> None:
    """Do the same in an event loop."""
    await tasks.noop.adelay(name)
    await topic("traced").apublish({"name": name})


@task(atomic=True)
def sends_on_atomic(name: str) -> None:
    """Do the same in one transaction with the ack."""
    tasks.noop.delay(name)
    topic("traced").publish({"name": name})


@task(accumulate=Accumulate(size=3, within="1h"))
def many(calls: list[Call]) -> None:
    """Take three calls at once."""
