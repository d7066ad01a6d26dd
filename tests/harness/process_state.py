"""What a process of tests is like: a file of tests must leave it as it was."""

from __future__ import annotations

import gc
import locale
import os
import sys
from collections.abc import Iterator
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

# Spark's of its first session, and pytest's own.
OTHERS = ("SPARK_", "PYSPARK_", "PYTEST_")


def process_state() -> dict[str, Any]:
    """Return what tests may change, and others go by."""
    umask = os.umask(0o077)
    os.umask(umask)
    variables = {
        f"${name}": value
        for name, value in os.environ.items()
        if not name.startswith(OTHERS)
    }
    return {
        "the recursion limit": sys.getrecursionlimit(),
        "the working directory": os.getcwd(),  # noqa: PTH109  # As text.
        "the locale": locale.setlocale(locale.LC_ALL),
        "the collector": gc.isenabled(),
        "the umask": umask,
        # pytest-django's takes its place while a test may not connect.
        "what connects": BaseDatabaseWrapper.ensure_connection.__qualname__,
        **variables,
    }


def left_behind(before: dict[str, Any]) -> Iterator[str]:
    """Say what differs from *before*."""
    now = process_state()
    for what in sorted({*before, *now}):
        if before.get(what) != now.get(what):
            yield f"{what} was {before.get(what)!r} and is {now.get(what)!r}"
