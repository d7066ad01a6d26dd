"""The page beside an article's queries: what it names as ours is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.apps import apps

import django_pgqueue
from django_pgqueue.conf import Settings
from django_pgqueue.management.commands.pgqueue import SUBCOMMANDS
from django_pgqueue.options.table import OF_SETTINGS
from django_pgqueue.tasks.task import Task
from django_pgqueue.topics.consume import consume
from django_pgqueue.topics.group import Group
from django_pgqueue.topics.subscribe import OF_SUBSCRIBE
from django_pgqueue.topics.topic import Topic

ROOT = Path(django_pgqueue.__file__).resolve().parent
PAGE = ROOT.parent / "docs" / "explanation" / "build-your-own-sqs-or-kafka.md"

# SQL's own words, of which each must stand in ours.
OF_SQL = {"bigint", "timestamptz", "jsonb", "clock_timestamp", "hashtextextended"}
# Of the server, or what we do without.
OF_POSTGRES = {"NOTIFY", "NOT IN"}


def named():
    """Return the names in the last column of the page's tables."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [line.split("|")[-2] for line in lines if line.startswith("| ")]
    found = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    return sorted(found - OF_POSTGRES)


def known():
    """Return what somebody can write: calls, options, settings, commands, columns."""
    models = apps.get_app_config("pgqueue").get_models()
    fields = [(model._meta.db_table, model._meta.fields) for model in models]
    files = (ROOT / "sql").glob("*.sql")
    functions = [path.read_text(encoding="utf-8") for path in files]
    return {
        *django_pgqueue.__all__,
        *(name for kind in (Task, Topic, Group) for name in dir(kind)),
        *consume.__annotations__,
        *OF_SUBSCRIBE,
        *OF_SETTINGS,
        *(name.upper() for name in Settings.__dataclass_fields__),
        *SUBCOMMANDS,
        *(table for table, _ in fields),
        *(field.column for _, columns in fields for field in columns),
        *re.findall(r"FUNCTION (pgqueue_\w+)", " ".join(functions)),
        *(word for word in OF_SQL if any(word in text for text in functions)),
    }


@pytest.mark.parametrize("name", named())
def test_what_replaces_a_query_is_there(name):
    """By the name that the page calls it."""
    words = re.findall(r"[A-Za-z_]+", re.sub(r'=.*|"[^"]*"|PRIMARY KEY', "", name))
    assert words
    assert {*words} - {"pgqueue"} <= known()


def test_the_page_names_some():
    """The test looks where they are."""
    assert {"pgqueue_position", "seek()", "pgqueue_enqueue"} <= {*named()}
