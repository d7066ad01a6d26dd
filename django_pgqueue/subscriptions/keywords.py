"""Keywords: the rest of the table, of @subscribe; see options/table.py."""

# Without postponed annotations: the rows are read here.

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

from django_pgqueue.options.table import (
    ContextKeywords,
    JobKeywords,
    OneByOneKeywords,
    Option,
    options_of,
)
from django_pgqueue.topics.start import LATEST


class SubscribeKeywords(OneByOneKeywords, total=False):
    """What @subscribe takes besides takes_context."""

    where: Annotated[
        Mapping[str, Any] | None,
        Option(
            "Only messages whose payload contains this JSON object, at most 8,192 "
            "bytes; the database looks, with ``@>``."
        ),
    ]
    start: Annotated[
        str | datetime | timedelta,
        Option(
            'With which message a new subscription begins: "latest": what is published '
            'from its commit on; "earliest": all that the log still has; a datetime, '
            'or "60 days ago": what was published from then on. Each message makes one '
            "job. An existing subscription does not look at it any more.",
            default=LATEST,
        ),
    ]


OF_SUBSCRIBE = options_of(SubscribeKeywords, ContextKeywords)
# What a subscription says of its jobs, and not of their task.
OF_JOBS = options_of(JobKeywords)
