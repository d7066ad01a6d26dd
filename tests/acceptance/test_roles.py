"""A worker whose role owns no table: it works, also on a day that nobody has made."""

from __future__ import annotations

import pytest

from django_pgqueue.log.days import drop_day
from django_pgqueue.models import ArchivedJob
from django_pgqueue.postgres.day_tables import ARCHIVE, LOG
from tests.app.tasks import noop
from tests.harness.waiting import wait_for
from tests.places.roles import granted, login

pytestmark = pytest.mark.smoke

ROLE = "shop_worker"


@pytest.fixture
def told(cursor):
    """A role of its own, with what the file says to grant."""
    with granted(cursor), login(cursor, ROLE, kind="worker", password="shop"):
        yield {"USER": ROLE, "PASSWORD": "shop"}


def test_a_worker_that_owns_nothing_works_on(
    told, cursor, archive_days, log_days, start_worker
):
    """It says what it cannot do, settles, and makes the days that are missing."""
    today = log_days(0)
    ARCHIVE.remove(cursor, today)
    drop_day(cursor, today)
    noop.delay()

    worker = start_worker(databases={"default": told})

    wait_for(lambda: ArchivedJob.objects.count() == 1, what="an archived job")
    wait_for(lambda: today in LOG.attached(cursor), what="today in the log")
    assert today in ARCHIVE.attached(cursor)
    (line,) = worker.lines("does not own the tables")
    assert f"GRANT {cursor.connection.info.user} TO {ROLE}" in line
