"""
Message prefetch: the messages that claimed jobs refer to, in one query for all of them.

A job whose message is not brought along fetches it when it starts, so nothing here can
cost a job: what fails is logged, and what is large or gone is left to the job itself.
"""

from __future__ import annotations

import logging
import re
from datetime import datetime

import psycopg

from django_pgqueue.log.message import fetch_many
from django_pgqueue.postgres.connect import Link
from django_pgqueue.queues.claim import Claimed

logger = logging.getLogger("django_pgqueue.worker")

# As PostgreSQL writes a reference to a message in jsonb. Quotes inside of a text are
# escaped there, so it stands in no text.
MARK = '"__pgqueue__": "message"'
REFERENCE = re.compile(
    r'\{"value": \[(\d{1,19}), "([0-9T:.+-]{1,40})"\], "__pgqueue__": "message"\}'
)


def bring_messages(link: Link, jobs: list[Claimed]) -> list[Claimed]:
    """Return *jobs*, with the messages that those with MARK refer to in their args."""
    referring = [job for job in jobs if MARK in job.args]
    references = [each for job in referring for each in REFERENCE.findall(job.args)]
    try:
        wanted = {int(key): datetime.fromisoformat(at) for key, at in references}
        if not wanted:
            return jobs
        with link.steady_cursor() as cursor:
            found = fetch_many(cursor, list(wanted.items()))
    except (psycopg.Error, ValueError) as error:
        logger.warning(
            "unbrought  messages of %d jobs, which fetch their own: %s",
            len(referring),
            str(error).strip(),
        )
        return jobs

    def whole(reference: re.Match[str]) -> str:
        return found.get(int(reference[1]), reference[0])

    return [
        job._replace(args=REFERENCE.sub(whole, job.args)) if MARK in job.args else job
        for job in jobs
    ]
