"""No page keeps the database busy for longer than its limit."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_pgqueue.admin import acting
from django_pgqueue.admin.acting import limited
from django_pgqueue.postgres.limits import Plans
from tests.harness.factories import (
    make_job,
)

LOCK_ALL = "LOCK TABLE pgqueue_job, pgqueue_dead_letter IN ACCESS EXCLUSIVE MODE"

SETTINGS = ("statement_timeout", "enable_seqscan", "enable_bitmapscan", "jit")


def current():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT " + ", ".join(f"current_setting('{name}')" for name in SETTINGS)
        )
        return dict(zip(SETTINGS, cursor.fetchone(), strict=True))


@pytest.mark.parametrize(
    "path",
    [
        *("job/", "job/?q=x", "job/1/change/", "job/groups/"),
        *("deadletter/groups/", "deadletter/"),
    ],
)
@pytest.mark.django_db(transaction=True)
def test_a_page_that_takes_too_long_says_so(admin_client, monkeypatch, cursor, path):
    """503 and what to do, while somebody keeps the tables locked."""
    make_job(id=1)

    with cursor.connection.transaction(), monkeypatch.context() as patch:
        cursor.execute(LOCK_ALL)
        patch.setattr(acting, "STATEMENT_SECONDS_MAX", 0.1)
        response = admin_client.get(f"/admin/pgqueue/{path}")

    assert 503 == response.status_code
    assert "The database took too long" in response.content.decode()
    assert 200 == admin_client.get(f"/admin/pgqueue/{path}").status_code


@pytest.mark.django_db(transaction=True)
def test_the_limit_ends_with_the_page():
    """A pooled connection goes on to others as it was."""
    before = current()

    with limited(Plans.IN_ORDER):
        inside = current()

    assert {
        "statement_timeout": "10s",
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "jit": "off",
    } == inside
    assert before == current()


@pytest.mark.django_db
def test_the_limit_ends_inside_of_a_longer_transaction():
    """ATOMIC_REQUESTS: whether the page went well or not, and nested."""
    before = current()

    with limited(Plans.IN_ORDER):
        with limited(Plans.BY_INDEX):
            assert "on" == current()["enable_bitmapscan"]
        assert "off" == current()["enable_bitmapscan"]
    assert before == current()
    with pytest.raises(ValueError, match="a page failed"), limited(Plans.IN_ORDER):
        raise ValueError("a page failed")
    assert before == current()


@pytest.mark.parametrize(
    "page", ["job", "archivedjob", "deadletter", "queue", "worker"]
)
@pytest.mark.django_db
def test_every_query_of_a_page_is_limited(admin_client, page):
    """None is sent before the limit, or after it has ended."""
    row = make_job()
    for path in ("", f"{row.pk}/change/", f"{row.pk}/history/"):
        assert_is_limited(admin_client, f"{page}/{path}")


def assert_is_limited(client, path):
    with CaptureQueriesContext(connection) as queries:
        client.get(f"/admin/pgqueue/{path}")

    sent = [query["sql"] for query in queries]
    marks = [n for n, sql in enumerate(sent) if "set_config" in sql]
    ours = [n for n, sql in enumerate(sent) if "pgqueue_" in sql]
    assert marks[0] < min(ours), path
    assert max(ours) < marks[-1], path
