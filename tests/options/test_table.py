"""Table: what an option of a task is made of, and what is made of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from django_pgqueue import DeclarationError, subscribe, task
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.options import OF_TASK, OF_USING
from django_pgqueue.topics.subscribe import OF_SUBSCRIBE
from tests.harness.waiting import patience

PACKAGE = Path(__file__).parents[2] / "django_pgqueue"

# The whole of an option: its row, and the types that it has once it is checked.
ROW = """
    colour: Annotated[
        str | None,
        Option("Red or blue.", check_colour, "blue", in_settings=True),
    ]
"""
CHECK = """
from django_pgqueue.exceptions import InvalidOption


def check_colour(value: object) -> str:
    if value in ("red", "blue"):
        return str(value)
    raise InvalidOption(f"colour={value!r}: it must be red or blue.")


"""
EDITS = (
    ("class PlaceKeywords", CHECK.lstrip()),
    ("    name: Annotated[", ROW.lstrip("\n")),
    ("    archive: bool | None = None\n", "    colour: str | None = None\n"),
    ("    archive: bool\n", "    colour: str\n"),
)

PROGRAM = """
import inspect, json
import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["django_pgqueue"],
    PGQUEUE={"QUEUES": {"mail": {"colour": "red"}}},
    TASKS={
        "default": {
            "BACKEND": "django_pgqueue.backends.tasks.PgQueueBackend",
            "QUEUES": [],
            "OPTIONS": {"colour": "red"},
        }
    },
)
django.setup()

from django_pgqueue import subscribe, task
from django_pgqueue.backends.declared import job_task
from django_pgqueue.backends.tasks import task as standard_task
from django_pgqueue.conf import get_settings, parse


def colour(task, queue="default"):
    return task.resolve(queue, get_settings()).colour


def refusal(act):
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def by_task(): ...
def by_subscription(message): ...
def by_backend(): ...
def by_options(): ...
def silent(): ...


def standard(function, **options):
    declared = standard_task(**options)(function)
    backend = declared.get_backend()
    return job_task(declared, backend.options, type(backend))


def both(said_by):
    return [f.__name__ for f in (task, subscribe) if said_by(f)]


silent = task(silent)
print(json.dumps({
    "said by a task": colour(task(colour="red")(by_task)),
    "said by a subscription": colour(subscribe("a", colour="red")(by_subscription)),
    "said by a task of django.tasks": colour(standard(by_backend, colour="blue")),
    "said by OPTIONS": colour(standard(by_options)),
    "said by QUEUES": colour(silent, "mail"),
    "said by nobody": colour(silent),
    "refused by a task": refusal(lambda: task(colour="green")(by_task)),
    "refused by settings": refusal(lambda: parse({"DEFAULTS": {"colour": "green"}})),
    "above a task": refusal(lambda: subscribe("b", colour="red")(silent)),
    "in signatures": both(lambda f: "colour" in inspect.signature(f).parameters),
    "in docstrings": both(lambda f: "colour: Red or blue." in f.__doc__),
}))
"""


@pytest.fixture
def declared(monkeypatch):
    """What a test declares is forgotten after it."""
    monkeypatch.setattr(registry, "tasks", dict(registry.tasks))


@pytest.fixture
def with_colour(tmp_path):
    """A copy of the package with one more option: edits of one file."""
    shutil.copytree(
        PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__")
    )
    table = tmp_path / PACKAGE.name / "options" / "table.py"
    text = table.read_text(encoding="utf-8")
    for before, added in EDITS:
        assert 1 == text.count(before), before
        text = text.replace(before, added + before)
    table.write_text(text, encoding="utf-8")
    return tmp_path


def test_an_option_is_added_in_one_file(with_colour):
    """
    From there on all know it who take, check, default, explain or pass on options.

    Two files more are those of what it does, and the reference.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        cwd=with_colour,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["", *sys.path])},
        timeout=60 * patience(),
        check=False,
    )
    assert "" == done.stderr

    wrong = "colour='green': it must be red or blue."
    assert {
        "said by a task": "red",
        "said by a subscription": "red",
        "said by a task of django.tasks": "blue",
        "said by OPTIONS": "red",
        "said by QUEUES": "red",
        "said by nobody": "blue",
        "refused by a task": f"DeclarationError: @task: {wrong}",
        "refused by settings": f"SettingsError: PGQUEUE['DEFAULTS']: {wrong}",
        "above a task": "DeclarationError: @subscribe(colour=…) stands above the task "
        "__main__.silent: that is an option of the task. Say it in @task, or in the "
        "innermost @subscribe.",
        "in signatures": ["task", "subscribe"],
        "in docstrings": ["task", "subscribe"],
    } == json.loads(done.stdout)


ROWS = {**OF_TASK, **OF_USING, **OF_SUBSCRIBE}


def test_the_default_of_a_row_passes_its_check():
    """It is what somebody could have said."""
    defaults = {n: row.default for n, row in ROWS.items() if row.default is not None}

    assert defaults == {name: ROWS[name].check(defaults[name]) for name in defaults}


def test_none_is_the_same_as_not_saying_an_option(declared):
    """For all, so that what computes an option may leave it open."""
    silent = task(name="silent")(lambda: None)
    open_ = task(**dict.fromkeys(OF_TASK) | {"name": "open"})(lambda: None)

    assert silent.options == open_.options


def test_subscribe_refuses_what_it_has_not():
    """With the way out, as @task does."""
    with pytest.raises(DeclarationError, match=r"@subscribe has no .*'timeout'\?"):
        subscribe("orders.*", tiemout=5)
