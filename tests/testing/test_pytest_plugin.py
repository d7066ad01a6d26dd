"""The plugin: the fixture and the mark, and nothing for those who use neither."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from django_pgqueue.testing import Drained
from tests.app.tasks import add, fails, fails_once, make_order, noop

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


# Those who use neither ---------------------------------------------------------------


def test_pytest_finds_the_plugin_by_itself():
    """It is an entry point of the package."""
    (found,) = entry_points(group="pytest11", name="pgqueue")

    assert "django_pgqueue.testing.pytest_plugin" == found.value


@pytest.mark.slow
def test_without_django_it_imports_nothing_and_the_fixture_says_what_is_missing(
    tmp_path,
):
    """A project without Django, or without settings, does not notice the plugin."""
    source = """
import sys

def test_it(request):
    assert request.config.pluginmanager.get_plugin("pgqueue") is not None
    ours = {"django_pgqueue", "django_pgqueue.testing",
            "django_pgqueue.testing.pytest_plugin"}
    heavy = ("django", "psycopg", "asgiref", "django_pgqueue")
    assert ours == {m for m in sys.modules if m.partition(".")[0] in heavy}

def test_the_fixture(pgqueue): ...
"""
    status, output = run_pytest(tmp_path, source, "-p", "no:django", "-W", "error")

    assert 0 != status
    assert "1 passed, 1 error" in output, output
    assert "The fixture pgqueue needs pytest-django" in output
