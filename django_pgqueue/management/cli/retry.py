"""pgqueue retry: failed jobs that wait for their next attempt are due now."""

from __future__ import annotations

from typing import Any

from django_pgqueue.management.cli.acting import Verb, act, add_selection, answer
from django_pgqueue.management.cli.output import Output
from django_pgqueue.management.cli.rows import live
from django_pgqueue.management.cli.words import add_filters
from django_pgqueue.tasks import operate

HELP = "Make waiting jobs due now; dead letters named by id are redriven."

VERB = Verb("retry", "retried", operate.retry)


def add_arguments(parser: Any) -> None:
    """Declare which jobs."""
    add_selection(parser)
    add_filters(parser, "queue", "task", "tag")


def run(options: dict[str, Any], out: Output) -> int:
    """Retry; by filters, only what has failed and waits for its next attempt."""
    waiting = live({"retrying"})
    return answer(VERB, act(VERB, waiting, options, out), options, out)
