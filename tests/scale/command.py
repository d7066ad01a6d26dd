"""What python -m tests.scale does."""

from __future__ import annotations

import argparse
from functools import partial

from django.core.management import call_command
from django.db import connections

from tests.scale.figures import FIGURES
from tests.scale.large import Size, load

say = partial(print, flush=True)

EXISTS = "SELECT 1 FROM pg_database WHERE datname = %s"


def use(name: str) -> None:
    """Let the alias "default" lead to the database *name*, made when it is missing."""
    connection = connections["default"]
    with connection._nodb_cursor() as cursor:
        cursor.execute(EXISTS, [name])
        if cursor.fetchone() is None:
            cursor.execute(f'CREATE DATABASE "{name}"')
    connection.settings_dict["NAME"] = name


def run(options: argparse.Namespace) -> int:
    """Do what the command line says; return the exit status."""
    if options.what == "drop":
        return drop()
    call_command("migrate", verbosity=0)
    if options.what == "load":
        size = Size(options.archived, options.days, options.waiting, options.dead)
        left = load(
            "default", size, connections=options.connections, seconds=options.seconds
        )
        say(f"{len(left)} pieces are left")
        return 1 if left else 0
    return measure(options.names or list(FIGURES))


def measure(names: list[str]) -> int:
    """Print one line for each figure."""
    for name in names:
        say(f"== {name}")
        for line in FIGURES[name]():
            say("  ".join(f"{key}={value}" for key, value in line.items()))
    return 0


def drop() -> int:
    """Drop the database."""
    connection = connections["default"]
    with connection._nodb_cursor() as cursor:
        name = connection.settings_dict["NAME"]
        cursor.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    return 0
