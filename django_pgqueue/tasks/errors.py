"""Errors: what a job keeps of one, whatever its class does when it is asked."""

from __future__ import annotations

import traceback
from functools import lru_cache
from pathlib import Path

from django_pgqueue.exceptions import RemoteError

# Characters kept of a traceback: its beginning and its end.
TRACEBACK_CHARACTERS_MAX = 16_384

NAME_CHARACTERS_MAX = 512
MESSAGE_CHARACTERS_MAX = 2_048

# Whose frames come before those of a task.
OUR_FILES = frozenset(
    str(Path(__file__).with_name(f"{name}.py"))
    for name in ("atomic", "declared", "perform", "prepare", "task")
)


def type_of(error: BaseException) -> tuple[str, str]:
    """Return the module and the name of an error's class, as errors keep them."""
    kind = type(error)
    try:
        names = f"{kind.__module__}", f"{kind.__qualname__}"
    except BaseException:  # Its metaclass says what these are.
        names = "builtins", "BaseException"
    module, name = (_shortened(text, NAME_CHARACTERS_MAX) for text in names)
    return module, name


@lru_cache(maxsize=256)
def class_like(module: str, qualname: str) -> type[RemoteError]:
    """Return a class that shows as the one of an error, and has nothing else of it."""
    name = qualname.rpartition(".")[2]
    names = {"__module__": module, "__qualname__": qualname}
    return type(name, (RemoteError,), names)


def message_of(error: BaseException) -> str:
    """Return what an error says, as a job's errors keep it."""
    return _shortened(_message(error), MESSAGE_CHARACTERS_MAX)


def traceback_of(error: BaseException) -> str:
    """Return an error's traceback, as a job's errors keep it."""
    return _shortened(_traceback(error), TRACEBACK_CHARACTERS_MAX)


def _message(error: BaseException) -> str:
    try:
        # Not a class of its own, whose methods could raise later.
        return "".join(str(error))
    except BaseException as failure:
        return f"(its __str__ raised {type(failure).__name__})"


def _traceback(error: BaseException) -> str:
    try:
        trace = error.__traceback__
        # The first frames are ours and say nothing about the task.
        while trace is not None and trace.tb_frame.f_code.co_filename in OUR_FILES:
            trace = trace.tb_next
        return "".join(traceback.format_exception(type(error), error, trace))
    except BaseException as failure:
        return f"(formatting it raised {type(failure).__name__})"


def _shortened(text: str, characters_max: int) -> str:
    # What PostgreSQL cannot store is shown escaped: NUL, and surrogates.
    text = text.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()
    if len(text) <= characters_max:
        return text
    half = characters_max // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters …\n{text[-half:]}"
