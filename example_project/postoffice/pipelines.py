"""
Reminders by Spark: those of reminders.py, for mails by the million.

    python example_project/manage.py pgqueue_pipeline run reminders

Each address has the same offset by either. A second run on the same day writes nothing.
"""

from __future__ import annotations

from typing import Any

from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.places import Jobs, Query
from postoffice.reminders import remind

CORRESPONDENTS = """
SELECT address, count(*) AS mails
  FROM postoffice_emailmessage, unnest("to") AS address
 WHERE status = 'sent'
 GROUP BY address
"""


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
