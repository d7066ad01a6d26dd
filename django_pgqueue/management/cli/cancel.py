"""pgqueue cancel: jobs that wait are archived, jobs that run are asked to stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_pgqueue.management.cli.acting import (
    Verb,
    act,
    add_selection,
    answer,
    counted,
    operator_name,
)
from django_pgqueue.management.cli.output import Output
from django_pgqueue.management.cli.rows import Filters, live
from django_pgqueue.management.cli.words import add_filters, live_state
from django_pgqueue.models.job import LiveState
from django_pgqueue.tasks import operate

HELP = "Cancel jobs that wait, and ask jobs that run to stop."


def add_arguments(parser: Any) -> None:
    """Declare which jobs."""
    add_selection(parser)
    add_filters(parser, "queue", "task", "tag")
    parser.add_argument(
        "--state",
        action="append",
        type=live_state,
        metavar="STATE",
        help=f"In this state; may be given again: {', '.join(LiveState.values)}.",
    )


def run(options: dict[str, Any], out: Output) -> int:
    """Cancel."""
    by, requested = operator_name(), list[int]()

    def cancel(ids: Sequence[int]) -> list[int]:
        answered = operate.cancel(ids, by=by)
        requested.extend(answered.requested)
        return [*answered.cancelled, *answered.requested]

    verb = Verb("cancel", "cancelled", cancel)
    jobs = live(Filters.of(options).states)
    done = act(verb, jobs, options, out)
    if requested and not out.as_json:
        out.note(
            f"Of them, {counted(len(requested))} running: asked to stop; the task "
            f"decides when."
        )
    return answer(verb, done, options, out)
