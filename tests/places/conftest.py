"""Fixtures of the tests of places: one database for all of them, and its logins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.harness.databases import lent
from tests.harness.worker_process import start_worker, the_ledger
from tests.places.place import Place, as_queue, made

__all__ = ["start_worker", "the_ledger"]


@pytest.fixture(scope="session")
def one_place(django_db_setup: None, django_db_blocker: Any) -> Iterator[Place]:
    """The database, made once."""
    with lent(made(), django_db_blocker) as place:
        yield place


@pytest.fixture
def place(one_place: Place, transactional_db: None) -> Iterator[Place]:
    """The database, in which no other test has left a row."""
    yield one_place
    one_place.empty()


@pytest.fixture
def log_in(place: Place, settings: Any) -> Iterator[Callable[[str | None], str]]:
    """``log_in("producer")``: from now on this process is the queue's producer."""
    with ExitStack() as stack:

        def log_in(kind: str | None) -> str:
            name = stack.enter_context(as_queue(place.database(kind)))
            settings.PGQUEUE = {"DATABASE": name}
            return name

        yield log_in
