"""
Replay: a range of a log, of files or of the archive, once more.

    manage.py pgqueue_pipeline run replay -o source=/srv/log -o topic=orders
        -o to=subscription:mail/orders.paid -o since='60 days ago' -o preview=true

What it reads and whom it wakes are options, so it is not for the queue, where others
could change them. What the database has it replays itself: then no Spark is started.
"""

from __future__ import annotations

from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.replay import replay_asked
from django_pgqueue.spark.run import Run


@pipeline_job(name="replay", in_queue=False, takes_out=())
def replay(
    run: Run,
    *,
    source: str = "",
    topic: str = "",
    to: str = "",
    since: str | None = None,
    until: str | None = None,
    where: str | None = None,
    task: str | None = None,
    queue: str | None = None,
    state: str | None = None,
    rate: int = 0,
    name: str | None = None,
    refused_path: str | None = None,
    preview: bool = False,
) -> int:
    """
    Replay messages of a log or of files, or jobs of the archive or of files, once.

    Options: source, log, archive or where ingest or export has written; topic, whose
    messages; to, topic:, subscription:, group: or queue:; since and until; where, a
    condition on files; task, queue and state, which jobs; rate, so many a second;
    name, under which it is done once; refused_path; preview, which counts and writes
    nothing.
    """
    return replay_asked(run)
