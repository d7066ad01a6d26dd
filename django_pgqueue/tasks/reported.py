"""
Reported: an error as log handlers get it, which send it to people and to services.

They print variables, too: Sentry and Django's error mails those of each frame, and so
the arguments of a job. What PGQUEUE["REDACT"] hides would leave the house.
"""

from __future__ import annotations

from types import TracebackType

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import RemoteError
from django_pgqueue.redaction.text import redact_text
from django_pgqueue.tasks.errors import (
    OUR_FILES,
    class_like,
    message_of,
    type_of,
)

# Of an error, and of those that it came from.
CHAIN_MAX = 10


def reported(error: BaseException, chain: int = CHAIN_MAX) -> RemoteError:
    """
    Return what stands for *error* in a report: its class, its words and its places.

    The words are without what PGQUEUE["REDACT"] hides; the places are without their
    variables, which are gone from the frames of *error*, too.

    Args:
        error: Of an attempt that is over.
        chain: How many are told, with those that it came from.
    """
    patterns = get_settings().redact
    made = class_like(*type_of(error))(redact_text(message_of(error), patterns), "")
    made.__traceback__ = _emptied(error.__traceback__)
    if chain > 1:
        if error.__cause__ is not None:
            made.__cause__ = reported(error.__cause__, chain - 1)
        elif error.__context__ is not None and not error.__suppress_context__:
            made.__context__ = reported(error.__context__, chain - 1)
    made.__suppress_context__ = error.__suppress_context__
    return made


def _emptied(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback through frames that have no variables any more."""
    kept: list[TracebackType] = []
    while trace is not None:
        try:
            trace.tb_frame.clear()
        except RuntimeError:
            pass  # It still runs, so its variables would be seen.
        else:
            if trace.tb_frame.f_code.co_filename not in OUR_FILES:
                kept.append(trace)
        trace = trace.tb_next
    made: TracebackType | None = None
    for each in reversed(kept):
        made = TracebackType(made, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return made
