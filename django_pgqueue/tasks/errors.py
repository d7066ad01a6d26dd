"""Errors: what a job keeps of one, whatever its class does when it is asked."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, connections
from django.utils.connection import ConnectionDoesNotExist

from django_pgqueue.conf import Settings, get_settings
from django_pgqueue.exceptions import RemoteError, SchemaError, did_you_mean

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
    try:
        # Not a class of its own, whose methods could raise later.
        text = "".join(str(error))
    except BaseException as failure:
        text = f"(its __str__ raised {type(failure).__name__})"
    return _shortened(text, MESSAGE_CHARACTERS_MAX)


def traceback_of(error: BaseException) -> str:
    """Return an error's traceback, as a job's errors keep it."""
    try:
        trace = error.__traceback__
        # The first frames are ours and say nothing about the task.
        while trace is not None and trace.tb_frame.f_code.co_filename in OUR_FILES:
            trace = trace.tb_next
        text = "".join(traceback.format_exception(type(error), error, trace))
    except BaseException as failure:
        text = f"(formatting it raised {type(failure).__name__})"
    return _shortened(text, TRACEBACK_CHARACTERS_MAX)


def _shortened(text: str, characters_max: int) -> str:
    # What PostgreSQL cannot store is shown escaped: NUL, and surrogates.
    text = text.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()
    if len(text) <= characters_max:
        return text
    half = characters_max // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters …\n{text[-half:]}"


# First steps --------------------------------------------------------------------------
# First steps: what a call says when Django's own words would leave one alone with them.
#
# Everybody meets them: a call from async code, one before the tables are made, and one
# where DATABASES, such as that of tests, has no PostgreSQL.


# What Django raises for these.
FIRST_ERRORS = (SynchronousOnlyOperation, DatabaseError, ConnectionDoesNotExist)

# PostgreSQL's codes for a table, a column and a function that is not there.
NOT_THERE = frozenset({"42P01", "42703", "42883"})


@contextmanager
def way_out(call: str, async_call: str) -> Iterator[None]:
    """Name the way out of a mistake that is made in the block; as name_way_out()."""
    try:
        yield
    except FIRST_ERRORS as error:
        name_way_out(error, call, async_call)
        raise


def name_way_out(error: Exception, call: str, async_call: str) -> None:
    """
    Raise an error that names the way out, if this is one of these mistakes.

    Args:
        error: What writing to the queue has raised.
        call: What users call for that.
        async_call: What they call from async code.
    """
    if isinstance(error, SynchronousOnlyOperation):
        raise SynchronousOnlyOperation(
            f"{call} waits for the database, which async code must not do: "
            f"say await {async_call}."
        ) from None
    alias = get_settings().database
    check_alias("DATABASE", alias)
    check_engine(alias)
    code = getattr(error.__cause__, "sqlstate", None)
    if code in NOT_THERE and "pgqueue_" in str(error):
        first = str(error).strip().split("\n")[0]
        raise SchemaError(
            f"The database of the jobs lacks what {call} needs ({first}): run "
            f"python manage.py migrate."
        ) from error


def check_alias(key: str, alias: str) -> None:
    """
    Verify that DATABASES has an alias, without a connection.

    Args:
        key: That of PGQUEUE which names it.
        alias: What it names.

    Raises:
        SchemaError: It lacks the alias.
    """
    if alias not in connections.settings:
        known = list(connections.settings)
        near = did_you_mean(alias, known) or f" Known are: {', '.join(known)}."
        raise SchemaError(
            f"PGQUEUE[{key!r}] is {alias!r}, which is not in DATABASES.{near}"
        )


def check_aliases(settings: Settings) -> None:
    """
    Verify that DATABASES has the aliases that PGQUEUE names.

    Raises:
        SchemaError: It lacks one.
    """
    for key in ("database", "listen_database"):
        alias = getattr(settings, key)
        if alias is not None:
            check_alias(key.upper(), alias)


def check_engine(alias: str) -> None:
    """
    Verify that a database is PostgreSQL's, without a connection.

    Args:
        alias: One of DATABASES.

    Raises:
        SchemaError: It is of another kind.
    """
    vendor = connections[alias].vendor
    if vendor != "postgresql":
        raise SchemaError(
            f"Database {alias!r} is {vendor}; jobs need PostgreSQL. Set its ENGINE to "
            f"'django.db.backends.postgresql', or PGQUEUE['DATABASE'] to another alias."
        )
