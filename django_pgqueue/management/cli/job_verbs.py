"""pgqueue retry, redrive, purge, cancel: what is done to jobs, by id or by filters."""

from __future__ import annotations

from functools import partial
from typing import Any

from django_pgqueue.management.cli.acting import (
    Verb,
    act,
    add_pace,
    add_selection,
    answer,
    counted,
    operator_name,
)
from django_pgqueue.management.cli.output import Output, Subcommand
from django_pgqueue.management.cli.rows import Filters, dead, live
from django_pgqueue.management.cli.words import (
    add_filters,
    add_force,
    check_is_known,
    live_state,
    queue_name,
)
from django_pgqueue.models.job import LiveState
from django_pgqueue.tasks import operate

# Retry -------------------------------------------------------------------------------


def _add_retry(parser: Any) -> None:
    add_selection(parser)
    add_filters(parser, "queue", "task", "tag", "error")


def _retry(options: dict[str, Any], out: Output) -> int:
    """By filters, retry only what has failed and waits for its next attempt."""
    waiting = {"scheduled", "retrying"}
    verb = Verb("retry", "retried", operate.retry, lambda: [live(waiting), dead()])
    return answer(verb, act(verb, live({"retrying"}), options, out), options, out)


RETRY = Subcommand(
    "Make waiting jobs due now; dead letters named by id are redriven.",
    _add_retry,
    _retry,
)

# Redrive -----------------------------------------------------------------------------

OF_LETTERS = ("queue", "task", "tag", "reason", "error", "since", "age")


def _add_redrive(parser: Any) -> None:
    add_selection(parser)
    add_filters(parser, *OF_LETTERS)
    add_pace(parser)
    parser.add_argument(
        "--to",
        type=queue_name,
        metavar="QUEUE",
        help="Into this queue (default: the one that each came from).",
    )
    add_force(parser)


def _redrive(options: dict[str, Any], out: Output) -> int:
    check_is_known(options["to"], options)
    verb = Verb("redrive", "redriven", partial(operate.redrive, queue=options["to"]))
    return answer(verb, act(verb, dead(), options, out), options, out)


REDRIVE = Subcommand(
    "Send dead letters back to a queue, with the same id, from attempt 1 on.",
    _add_redrive,
    _redrive,
)

# Purge -------------------------------------------------------------------------------


def _add_purge(parser: Any) -> None:
    add_selection(parser)
    add_filters(parser, *OF_LETTERS)
    add_pace(parser)


def _purge(options: dict[str, Any], out: Output) -> int:
    verb = Verb("delete", "deleted", operate.delete_dead_letters)
    return answer(verb, act(verb, dead(), options, out), options, out)


PURGE = Subcommand(
    "Delete dead letters for ever, with their arguments and errors.",
    _add_purge,
    _purge,
)

# Cancel ------------------------------------------------------------------------------


def _add_cancel(parser: Any) -> None:
    add_selection(parser)
    add_filters(parser, "queue", "task", "tag")
    parser.add_argument(
        "--state",
        action="append",
        type=live_state,
        metavar="STATE",
        help=f"In this state; may be given again: {', '.join(LiveState.values)}.",
    )


def _cancel(options: dict[str, Any], out: Output) -> int:
    by, requested = operator_name(), list[int]()

    def cancel(ids: Any) -> list[int]:
        found = operate.cancel(ids, by=by)
        requested.extend(found.requested)
        return [*found.cancelled, *found.requested]

    verb = Verb("cancel", "cancelled", cancel)
    done = act(verb, live(Filters.of(options).states), options, out)
    if requested and not out.as_json:
        out.note(
            f"Of them, {counted(len(requested))} running: asked to stop; the task "
            f"decides when."
        )
    return answer(verb, done, options, out)


CANCEL = Subcommand(
    "Cancel jobs that wait, and ask jobs that run to stop.", _add_cancel, _cancel
)
