"""The mistakes that everybody makes first: each is told with its way out."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection

from django_pgqueue import publish, task
from django_pgqueue.exceptions import DeclarationError, InvalidOption, SchemaError
from django_pgqueue.options.table import CELERY
from tests.app.tasks import noop

SETTINGS = """
from tests.settings import *

INSTALLED_APPS = [*INSTALLED_APPS, "shop"]
"""


# Words that somebody brought along ------------------------------------------------


@pytest.mark.parametrize("word", ["bind", "max_retries", "acks_late", "time_limit"])
def test_task_says_what_a_word_of_celery_is_here(word):
    """Also where that is nothing at all."""
    with pytest.raises(DeclarationError, match=f"@task has no {word}.*Celery") as told:
        task(**{word: True})(len)

    assert CELERY[word] in str(told.value)


def test_a_typo_in_an_option_is_told_with_the_nearest_one():
    """Of @task and of using()."""
    with pytest.raises(DeclarationError, match=r"timout\. Did you mean 'timeout"):
        task(timout=5)(len)
    with pytest.raises(InvalidOption, match=r"itty\. Did you mean 'priority"):
        noop.using(prioritty=5)


# Async code -----------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(
    "call, twin",
    [
        (noop.delay, "task.adelay"),
        (noop.enqueue, "task.adelay"),
        (lambda: noop.using(priority=1).delay(), "task.adelay"),
        (lambda: noop.bulk([{}]), "task.abulk"),
        (lambda: publish("orders.created", {}), "apublish"),
    ],
)
def test_a_call_in_async_code_names_its_async_twin(call, twin):
    """In the words of Django's own exception, so that its handlers still work."""

    async def view():
        call()

    with pytest.raises(SynchronousOnlyOperation, match=twin):
        asyncio.run(view())


# No tables ------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(
    "call", [noop.delay, lambda: noop.bulk([{}]), lambda: publish("a.b", 1)]
)
def test_a_call_before_migrate_says_so(call):
    """As a table, a column or a function that is not there yet."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL search_path TO pg_temp")

    with pytest.raises(SchemaError, match=r"lacks what .* needs .*manage.py migrate"):
        call()


# No PostgreSQL --------------------------------------------------------------------


def test_a_call_in_a_database_that_is_not_there_names_those_that_are(settings):
    """By the setting that has the wrong alias."""
    settings.PGQUEUE = {"DATABASE": "nosuch"}

    with pytest.raises(SchemaError, match=r"'DATABASE'\] is 'nosuch'.*are: default"):
        noop.delay()


# A module that cannot be imported ---------------------------------------------------


@pytest.fixture
def manage(tmp_path):
    """Run manage.py of a project whose shop/tasks.py has a typo."""
    shop = tmp_path / "shop"
    shop.mkdir()
    (tmp_path / "broken_settings.py").write_text(SETTINGS)
    (shop / "__init__.py").write_text("")
    (shop / "tasks.py").write_text("import no_such_library\n")
    (shop / "views.py").write_text("ready = True\n")

    def run(*arguments):
        code = f"""
            import sys
            from tests import settings
            sys.path.insert(0, {str(tmp_path)!r})
            from django.core.management import execute_from_command_line
            execute_from_command_line(["manage.py", *{arguments!r}])
        """
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "broken_settings",
                "PYTHONPATH": str(tmp_path),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.mark.slow
def test_a_module_with_an_import_error_stops_workers_alone(manage):
    """The check tells it as a warning, which no command fails for."""
    checked = manage("check")
    worker = manage("pgqueue_worker", "--drain")

    assert 0 == checked.returncode, checked.stderr
    assert "pgqueue.W020" in checked.stderr
    assert "shop.tasks cannot be imported: ModuleNotFoundError" in checked.stderr
    assert "unimported module=shop.tasks" in checked.stderr
    assert 0 != worker.returncode
    assert "no_such_library" in worker.stderr
    assert "shop.tasks cannot be imported" in worker.stderr
