"""The processes that share the tests have a server each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from django.db import connection

from django_pgqueue.testing.embedded import URL_PREFIX, home_of, url_of
from tests.harness.servers import url_for_process

CHECKOUT = Path(__file__).resolve().parent.parent
OF_CHECKOUT = url_of(home_of(CHECKOUT))
TWO = f"{URL_PREFIX}/a {URL_PREFIX}/b"


@pytest.mark.parametrize(
    "process, given, servers, expected",
    [
        (None, None, "", None),
        (None, "postgres://db", "", "postgres://db"),
        (None, f"{URL_PREFIX}/a", TWO, f"{URL_PREFIX}/a"),
        ("gw0", f"{URL_PREFIX}/a", TWO, f"{URL_PREFIX}/a"),
        ("gw1", f"{URL_PREFIX}/a", TWO, f"{URL_PREFIX}/b"),
        ("gw1", f"{URL_PREFIX}/b", TWO, f"{URL_PREFIX}/b"),
        ("gw1", f"{URL_PREFIX}/of-a-test", TWO, f"{URL_PREFIX}/of-a-test"),
        ("gw2", f"{URL_PREFIX}/a", TWO, f"{URL_PREFIX}/a"),
        ("gw1", OF_CHECKOUT, "", None),
        ("gw1", f"{URL_PREFIX}/of-a-test", "", f"{URL_PREFIX}/of-a-test"),
        ("gw1", "postgres://db", "", "postgres://db"),
    ],
)
def test_a_process_has_a_url_of_its_own(process, given, servers, expected):
    """But for one that a test has given to its child, and a server of yours."""
    environment = {
        "PYTEST_XDIST_WORKER": process,
        "DATABASE_URL": given,
        "PGQUEUE_TEST_SERVERS": servers,
    }
    said = {name: value for name, value in environment.items() if value is not None}

    assert expected == url_for_process(said, CHECKOUT)


@pytest.mark.skipif(
    "PYTEST_XDIST_WORKER" not in os.environ
    or not os.environ["DATABASE_URL"].startswith(URL_PREFIX),
    reason="one process does all, or all are on a server of yours",
)
@pytest.mark.django_db
def test_no_other_process_is_on_the_same_server():
    """Some tests end other sessions of it."""
    own = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT array_agg(datname::text) FROM pg_database"
            r" WHERE datname ~ '^test_pgqueue.*gw\d+$' AND datname !~ 'second'"
        )
        assert ([own],) == cursor.fetchone()
