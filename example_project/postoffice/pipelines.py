"""
Reminders by Spark: those of reminders.py, for mails by the million.

    python example_project/manage.py pgqueue_pipeline run reminders

Each address has the same offset by either. A second run on the same day writes nothing.
"""

from __future__ import annotations

from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.run import Run
from postoffice.reminders import remind

CORRESPONDENTS = """
SELECT address, count(*) AS mails
  FROM postoffice_emailmessage, unnest("to") AS address
 WHERE status = 'sent'
 GROUP BY address
"""


@pipeline_job(takes_out=())
def reminders(run: Run, *, over: str = "24h") -> int:
    """Remind everybody who had a mail, spread over a day."""
    return run.enqueue(
        run.query(CORRESPONDENTS),
        remind.name,
        name=f"reminders {run.started_at:%Y-%m-%d}",
        key="address",
        over=over,
        start=run.started_at.replace(second=0, microsecond=0),
    )
