"""Embedded: a server for a project that has configured no database."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connections
from psycopg.conninfo import conninfo_to_dict

from django_pgqueue.conf import get_settings

# What Django puts in where DATABASES says nothing.
NO_ENGINE = "django.db.backends.dummy"


@contextlib.contextmanager
def server_if_none(say: Any) -> Iterator[Mapping[str, Any] | None]:
    """
    Yield entries of DATABASES for an embedded server, or None where one is configured.

    The server is that of the project's folder (BASE_DIR, else the current one); it is
    left at the end, and stops if nobody else uses it.

    Args:
        say: Called with a line about what is used.

    Raises:
        EmbeddedServerError: It cannot be started; the extra "embedded" is missing.
    """
    alias = get_settings().database
    if alias not in connections.settings:
        # The error of Django, which names the alias.
        connections[alias]
    if connections.settings[alias]["ENGINE"] != NO_ENGINE:
        yield None
        return
    from django_pgqueue.testing.embedded import EmbeddedServer

    folder = getattr(settings, "BASE_DIR", None) or Path.cwd()
    with EmbeddedServer(folder) as server:
        say(f"No database is configured; using the embedded server in {server.home}.")
        told = conninfo_to_dict(server.url)
        yield {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": told["dbname"],
            "USER": told["user"],
            "PASSWORD": "",
            "HOST": told["host"],
            "PORT": told["port"],
        }
