"""The plugin: the fixture and the mark, and nothing for those who use neither."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone

from django_pgqueue.models import Job
from django_pgqueue.testing import Drained, assert_enqueued
from django_pgqueue.topics.captured import Captured
from tests.app.tasks import Unlucky, add, fails, fails_once, make_order, noop

ROOT = Path(__file__).resolve().parents[2]


def run_pytest(tmp_path, source, *options, **environment):
    """Run pytest on a file of its own, in a new process; return status and output."""
    (tmp_path / "test_it.py").write_text(source)
    ours = ("DJANGO", "PYTEST", "COV", "PYTHONPATH")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    plain = ["-p", "no:randomly", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *plain, *options),
            *("--rootdir", str(tmp_path), "test_it.py"),
        ],
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


# The fixture -------------------------------------------------------------------------


def test_the_fixture_is_the_whole_kit(pgqueue):
    """The example of the documentation; it lets the test use the database."""
    make_order.using(queue="mail", run_after="1h").delay("x")

    (job,) = pgqueue.assert_enqueued(make_order, "x", queue="mail")
    assert [job] == pgqueue.enqueued
    pgqueue.assert_not_enqueued(noop)

    clock = pgqueue.freeze()
    clock.advance("61m")
    drained = pgqueue.drain("mail", raise_errors=True)
    assert isinstance(drained, Drained)
    assert 1 == drained
    assert [1, 1] == [pgqueue.drain(max_jobs=1) or 1, len(pgqueue.enqueued)]


def test_its_clock_stops_until_the_end_of_the_test(pgqueue):
    """Without a block."""
    clock = pgqueue.freeze("2001-01-01T00:00Z")

    assert 2001 == timezone.now().year
    with pytest.raises(RuntimeError, match="frozen already"):
        pgqueue.freeze()
    assert clock.now + timedelta(hours=1) == clock.advance("1h")


def test_the_clock_of_another_test_goes_on(pgqueue):
    """Whichever test ran before."""
    assert timezone.now().year > 2025
    assert [Captured] == [*map(type, connection.execute_wrappers)]


def test_it_repeats_jobs(pgqueue):
    """As crash_once and redeliver do, which it has too."""
    assert [3, 3] == pgqueue.redeliver(add, 1, 2)
    assert 3 == pgqueue.crash_once(add, 1, 2)
    with pgqueue.capture() as jobs, pgqueue.immediate():
        add.delay(1, 2)

    assert [1, 3] == [len(jobs), len(pgqueue.enqueued)]


def test_it_knows_the_jobs_of_its_test_alone(pgqueue):
    """Nothing was enqueued yet."""
    assert [] == pgqueue.enqueued
    pgqueue.assert_not_enqueued()


@pytest.mark.django_db(transaction=True)
def test_it_works_where_everything_is_committed(pgqueue, cursor):
    """With the mark of pytest-django, or its fixture transactional_db."""
    fails.delay()

    assert 5 == pgqueue.drain(retries=True)
    cursor.execute("SELECT count(*) FROM pgqueue_dead_letter")
    assert (1,) == cursor.fetchone()


def test_a_wrong_count_shows_what_ran(pgqueue):
    """In the words of pytest's own assertion."""
    noop.delay()
    fails_once.delay()

    with pytest.raises(AssertionError) as caught:
        assert 1 == pgqueue.drain()
    said = str(caught.value)
    assert "1 == <Drained 2: 1 succeeded, 1 dead>" in said
    assert "fails_once, attempt 1, dead: Unlucky('bad luck')" in said
    with pytest.raises(AssertionError, match="nothing was due"):
        assert pgqueue.drain() == 3


# The mark ----------------------------------------------------------------------------


@pytest.mark.pgqueue(mode="immediate")
def test_the_mark_sets_the_mode():
    """And lets the test use the database, also without the fixture."""
    assert 3 == add.delay(1, 2).result


@pytest.mark.pgqueue(mode="immediate", raise_errors=True)
def test_the_mark_lets_errors_out(pgqueue):
    """As immediate(raise_errors=True)."""
    with pytest.raises(Unlucky, match="bad luck"):
        fails_once.delay()
    pgqueue.assert_enqueued(fails_once)


@pytest.mark.pgqueue(mode="immediate")
class TestOfAClass:
    """The nearest mark counts."""

    def test_as_the_class(self):
        """Immediate."""
        assert "succeeded" == noop.delay().status

    @pytest.mark.pgqueue(mode="normal")
    def test_unlike_the_class(self):
        """Normal again."""
        assert "ready" == noop.delay().status


@pytest.mark.pgqueue
def test_the_mark_alone_lets_the_test_use_the_database():
    """In the mode of the settings."""
    assert "ready" == noop.delay().status
    assert_enqueued(noop)


@pytest.mark.django_db
def test_the_mark_of_another_test_is_forgotten():
    """Whichever test ran before."""
    noop.delay()

    assert 1 == Job.objects.count()


# Those who use neither ---------------------------------------------------------------


def test_pytest_finds_the_plugin_by_itself():
    """It is an entry point of the package."""
    (found,) = entry_points(group="pytest11", name="pgqueue")

    assert "django_pgqueue.testing.pytest_plugin" == found.value


def test_it_imports_nothing_before_it_is_asked(tmp_path):
    """A project without Django, or whose settings are not configured, notices none."""
    source = """
import sys

def test_it(request):
    assert request.config.pluginmanager.get_plugin("pgqueue") is not None
    ours = {"django_pgqueue", "django_pgqueue.testing",
            "django_pgqueue.testing.pytest_plugin"}
    heavy = ("django", "psycopg", "asgiref", "django_pgqueue")
    assert ours == {m for m in sys.modules if m.partition(".")[0] in heavy}
"""
    status, said = run_pytest(tmp_path, source, "-p", "no:django", "-W", "error")

    assert 0 == status, said


def test_without_pytest_django_the_fixture_says_so(tmp_path):
    """The test database is its."""
    source = "def test_it(pgqueue): ..."
    status, said = run_pytest(tmp_path, source, "-p", "no:django")

    assert 0 != status
    assert "The fixture pgqueue needs pytest-django" in said


def test_a_mark_that_is_none_is_an_error(tmp_path):
    """With the words that it takes."""
    source = """
import pytest

@pytest.mark.pgqueue(mode="later")
def test_mode(): ...

@pytest.mark.pgqueue("immediate")
def test_place(): ...

@pytest.mark.pgqueue(raises=True)
def test_name(pgqueue): ...
"""
    status, said = run_pytest(
        tmp_path,
        source,
        "--strict-markers",
        DJANGO_SETTINGS_MODULE="tests.settings",
        DATABASE_URL="postgres:///unused",
    )

    assert 0 != status
    assert "3 errors" in said
    assert "pgqueue(mode='later'): it must be 'normal' or 'immediate'." in said
    assert 2 <= said.count("The mark is pgqueue(mode='normal', raise_errors=False).")
