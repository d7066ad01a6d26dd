"""Which server a process of the tests has: no two that share the tests have one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from django_pgqueue.testing.embedded import home_of, url_of


def url_for_process(environment: Mapping[str, str], checkout: Path) -> str | None:
    """
    Return the DATABASE_URL with which a process of the tests begins.

    It inherits that of the process that shares the tests out, which has a server too.
    A URL that a test has given to its child stays as it is.

    Args:
        environment: Of the process. PGQUEUE_TEST_SERVERS: URLs with spaces between, of
            which each process of `pytest -n 2` takes its own.
        checkout: Its embedded server is that of the process that shares out.

    Returns:
        None: there is none, and the process starts an embedded server of its own.
    """
    given = environment.get("DATABASE_URL")
    process = environment.get("PYTEST_XDIST_WORKER")
    if process is None:
        return given
    servers = environment.get("PGQUEUE_TEST_SERVERS", "").split()
    if given in servers:
        return servers[int(process.removeprefix("gw")) % len(servers)]
    return None if given == url_of(home_of(checkout)) else given
