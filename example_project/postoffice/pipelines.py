"""
Reminders: a mail to everybody who had some, each at a minute of the day that is theirs.

    python example_project/manage.py pgqueue_pipeline run reminders

At once, a hundred thousand mails would keep every receipt waiting. Here each address
has a moment of the next 24 hours, which follows from the address alone: tomorrow's run
comes to the same one. A second run on the same day writes nothing.
"""

from __future__ import annotations

from typing import Any

from django_pgqueue import task
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.places import Jobs, Query
from postoffice.acceptance import accept
from postoffice.drafts import Draft

CORRESPONDENTS = """
SELECT address, count(*) AS mails
  FROM postoffice_emailmessage, unnest("to") AS address
 WHERE status = 'sent'
 GROUP BY address
"""


# The mail is accepted with the ack of this job, or not at all: there is one reminder.
@task(queue="reminders", atomic=True)
def remind(address: str, mails: int) -> None:
    """Accept a mail to *address* that says how many there have been."""
    letter = Draft(
        subject=f"You have had {mails:,} mails from us",
        to=[address],
        cc=[],
        bcc=[],
        body="Thank you for reading them.\n",
    )
    accept([letter])


@pipeline_job(
    sources={"correspondents": Query(CORRESPONDENTS)},
    sinks={
        "reminders": Jobs(
            remind.name,
            name="reminders {run.started_at:%Y-%m-%d}",
            key="address",
            over="{over}",
            start="{run.started_at:%Y-%m-%dT%H:%MZ}",
        )
    },
)
def reminders(correspondents: Any, *, over: str = "24h") -> Any:
    """Remind everybody who had a mail, spread over a day."""
    return correspondents
