"""A sample handler of a scheduled message; of workers whose TASK_MODULES names it."""

from __future__ import annotations

from django_pgqueue import cron, subscribe, topic
from django_pgqueue.log.message import Message
from django_pgqueue.tasks.context import JobContext
from tests.harness import ledger

nightly = cron("0 3 * * *", tz="Europe/Berlin")(
    topic("cronjobs").message("cronjobs.nightly", {"full": True}, key="k")
)


@subscribe("cronjobs.*", takes_context=True)
def on_cronjob(ctx: JobContext, message: Message) -> None:
    """Note which tick the message is of."""
    ledger.write("cronjob", ctx.id, note=f"{message.name} {message.payload} {ctx.tick}")
