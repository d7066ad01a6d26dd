"""The public names: one table, its stub, and what importing them does not need."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import django_pgqueue
from django_pgqueue import exceptions, testing

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "django_pgqueue"

# Storage runs on Spark executors, which have no Django.
WITHOUT_DJANGO = [
    "django_pgqueue",
    "django_pgqueue.exceptions",
    "django_pgqueue.conf",
    "django_pgqueue.testing.embedded",  # Settings call it.
    *(
        f"django_pgqueue.{path.parent.name}.{path.stem}"
        for folder in ("queues", "postgres")
        for path in sorted((PACKAGE / folder).glob("[a-z]*.py"))
        # It uses a connection of Django's, for pages.
        if path.name != "limited.py"
    ),
]


def run(program):
    """Run *program* in a new interpreter without settings; return its output."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("module", [django_pgqueue, testing], ids=["package", "kit"])
def test_the_table_the_stub_and_a_star_import_agree(module):
    """Type checkers see the names that exist, each from the module that has it."""
    stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text("utf-8"))
    imported = {
        alias.asname: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    table = module._MODULES.items()
    assert imported == {name: f"{module.__name__}.{path}" for name, path in table}
    assert set(imported) <= set(dir(module))
    starred: dict[str, object] = {}
    exec(f"from {module.__name__} import *", starred)  # noqa: S102
    assert starred.keys() - {"__builtins__"} == imported.keys()


def test_every_exception_is_public_and_in_one_tree():
    """Code that catches PgQueueError catches everything that this package raises."""
    errors = [
        value
        for value in vars(exceptions).values()
        if isinstance(value, type) and value.__module__ == exceptions.__name__
    ]
    assert {error.__name__ for error in errors} <= set(django_pgqueue.__all__)
    assert all(issubclass(error, exceptions.PgQueueError) for error in errors)


def test_an_unknown_name_is_an_attribute_error():
    """As in any module."""
    with pytest.raises(AttributeError, match=r"'django_pgqueue'.*'taks'"):
        _ = django_pgqueue.taks


def test_storage_is_imported_without_django():
    """Spark executors import it on machines that have none."""
    loaded = run(
        f"import sys, {', '.join(WITHOUT_DJANGO)}\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] == 'django'))"
    )
    assert loaded == "[]"


def test_a_task_can_be_declared_before_django_is_set_up():
    """And `task` is the decorator, even after the module of that name is imported."""
    output = run(
        "import django_pgqueue.tasks.task\n"
        "from django_pgqueue import task, Retry, Reject, Snooze, RetryLater\n"
        "@task(retries=Retry(max_attempts=2), queue='mail')\n"
        "def send(order_id: int) -> int: return order_id\n"
        "print(send.name, send(3))"
    )
    assert output == "__main__.send 3"


def test_the_version_is_that_of_the_installed_distribution():
    """The newest tag names it."""
    assert django_pgqueue.__version__ == metadata.version("dj-pgqueue")
    assert re.match(r"\d+\.\d+", django_pgqueue.__version__)
