"""The public names: exactly a list, and importable where they are needed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import django_pgqueue
from django_pgqueue import exceptions

ROOT = Path(__file__).resolve().parent.parent

# Whoever changes this list changes the API: say so in the CHANGELOG.
PUBLIC_NAMES = [
    "Accumulate",
    "Backlog",
    "Batch",
    "Breaker",
    "Call",
    "Cancel",
    "Change",
    "DeclarationError",
    "DuplicateJob",
    "EmbeddedServerError",
    "Emitted",
    "EnqueueError",
    "Group",
    "InvalidArgument",
    "InvalidOption",
    "JobContext",
    "JobFailed",
    "JobField",
    "JobNotFound",
    "JobResult",
    "LeaseLost",
    "Limit",
    "Message",
    "MessagesLost",
    "MissingExtra",
    "OutputFull",
    "PayloadTooLarge",
    "PgQueueError",
    "PipelineBusy",
    "PipelineStopped",
    "PositionLost",
    "Publication",
    "PullMessage",
    "PullQueue",
    "QueueFull",
    "Rate",
    "Reject",
    "RemoteError",
    "ResultTimeout",
    "Retry",
    "RetryLater",
    "ScheduleError",
    "SchemaError",
    "SettingsError",
    "Signature",
    "Snooze",
    "SparkError",
    "SparkOptionError",
    "TaskTimeout",
    "Topic",
    "TopicError",
    "TransactionAborted",
    "UndecodablePayload",
    "Unique",
    "UnknownTask",
    "WorkflowFailed",
    "WorkflowNotFound",
    "WorkflowResult",
    "WrongDatabase",
    "WrongState",
    "acancel_message",
    "ainbox",
    "apublish",
    "apublish_many",
    "as_completed",
    "asignal",
    "batch",
    "batch_of",
    "cancel_message",
    "capture_actor",
    "chain",
    "chord",
    "consume",
    "cron",
    "every",
    "find_batch",
    "flow",
    "group",
    "inbox",
    "publish",
    "publish_many",
    "queue",
    "saga",
    "signal",
    "subscribe",
    "task",
    "topic",
]

# Storage runs on Spark executors, which have no Django.
WITHOUT_DJANGO = [
    "django_pgqueue",
    "django_pgqueue.exceptions",
    "django_pgqueue.conf",
    *(
        f"django_pgqueue.{path.parent.name}.{path.stem}"
        for package in ("queues", "postgres")
        for path in sorted((ROOT / "django_pgqueue" / package).glob("[a-z]*.py"))
        # On a connection of Django's, for pages.
        if path.name != "limited.py"
    ),
]


def run(program):
    """Run *program* in a new interpreter without settings; return what it prints."""
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


def test_the_public_names_are_exactly_these():
    """A name that comes or goes is a decision, not an accident."""
    assert PUBLIC_NAMES == sorted(django_pgqueue.__all__)


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_each_public_name_can_be_imported(name):
    """It is loaded on first use and is then an attribute like any other."""
    assert name == getattr(django_pgqueue, name).__name__
    assert name in dir(django_pgqueue)


def test_a_star_import_brings_the_public_names():
    """And nothing else."""
    names = run(
        "import django; from django.conf import settings\n"
        "settings.configure(INSTALLED_APPS=['django_pgqueue']); django.setup()\n"
        "before = set(dir())\n"
        "from django_pgqueue import *\n"
        "print(sorted(set(dir()) - before - {'before'}))"
    )

    assert PUBLIC_NAMES == ast.literal_eval(names)


def test_editors_are_shown_the_public_names():
    """What is loaded lazily is imported for type checkers, name by name."""
    tree = ast.parse(Path(django_pgqueue.__file__).read_text(encoding="utf-8"))
    (block,) = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    shown = [alias.name for node in block.body for alias in node.names]

    assert PUBLIC_NAMES == sorted(shown)
    assert PUBLIC_NAMES == sorted(django_pgqueue._HOMES)


def test_every_exception_is_public_and_of_one_tree():
    """Whoever catches PgQueueError catches all that this package raises."""
    errors = {
        name: value
        for name, value in vars(exceptions).items()
        if isinstance(value, type) and value.__module__ == exceptions.__name__
    }

    assert set(errors) <= set(PUBLIC_NAMES)
    assert [] == [
        name
        for name, value in errors.items()
        if not issubclass(value, exceptions.PgQueueError)
    ]


def test_an_unknown_name_is_an_attribute_error():
    """As of any module."""
    with pytest.raises(AttributeError, match=r"'django_pgqueue'.*'taks'"):
        _ = django_pgqueue.taks


def test_storage_is_imported_without_django():
    """Spark executors import it on machines that have none."""
    # In one process: no files import each other in a circle, so their order is free.
    loaded = run(
        f"import sys, {', '.join(WITHOUT_DJANGO)}\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] == 'django'))"
    )

    assert "[]" == loaded


def test_a_task_can_be_declared_before_django_is_set_up():
    """tasks.py may be imported from anywhere, without settings and app registry."""
    name = run(
        "from django_pgqueue import task, Retry, Reject, Snooze, RetryLater\n"
        "@task(retries=Retry(max_attempts=2), queue='mail')\n"
        "def send(order_id: int) -> int: return order_id\n"
        "print(send.name, send(3))"
    )

    assert "__main__.send 3" == name


def test_a_task_called_task_is_no_module():
    """The decorator's name is not shadowed by the module that holds it."""
    kind = run(
        "import django_pgqueue.tasks.task\n"
        "from django_pgqueue import task\n"
        "print(type(task).__name__)"
    )

    assert "function" == kind


def test_the_version_is_a_version():
    """It is that of the installed distribution, which the newest tag has named."""
    assert metadata.version("dj-pgqueue") == django_pgqueue.__version__
    assert re.match(r"\d+\.\d+", django_pgqueue.__version__)
