"""The commands of "Upgrade and remove", as printed, in a project of its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from django_pgqueue.postgres.connect import connection_params
from tests.docs.samples import ROOT
from tests.harness.waiting import patience
from tests.test_docs import section

PAGE = ROOT / "docs" / "howto" / "upgrade-and-remove.md"

# The reader says yes when these ask.
YES = {"cancel": "--yes", "remove_stale_contenttypes": "--no-input"}

SETTINGS = """
from tests.settings import DATABASES

SECRET_KEY = "none"
DATABASES = {{"default": {{**DATABASES["default"], "NAME": {name!r}}}}}
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django_pgqueue",
    "shop",
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""
MODELS = """
from django.db import models
from django_pgqueue import JobField

class Order(models.Model):
    receipt = JobField(null=True)
"""
MIGRATION = """
from django.db import migrations, models
from django_pgqueue import JobField

class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel("Order", [
            ("id", models.BigAutoField(auto_created=True, primary_key=True,
                                       serialize=False, verbose_name="ID")),
            ("receipt", JobField(null=True)),
        ]),
    ]
"""
TASKS = """
from django_pgqueue import subscribe, task, topic

orders = topic("orders")

@task(retries=0)
def note(number): return 1 / number

@subscribe("orders.*")
def hear(message): ...
"""
ENQUEUE = """
from shop.tasks import note, orders
for number in range(3): note.delay(number)
note.using(run_after="2h").delay(9)
orders.publish("orders.paid", {"id": 1})
"""

OURS = """
SELECT count(*) FROM (
    SELECT relname::text FROM pg_class UNION ALL SELECT proname::text FROM pg_proc
    UNION ALL SELECT typname::text FROM pg_type
    UNION ALL SELECT app FROM django_migrations
    UNION ALL SELECT app_label FROM django_content_type
    UNION ALL SELECT app_label FROM auth_permission
                JOIN django_content_type c ON c.id = content_type_id) AS named (name)
 WHERE name LIKE '%pgqueue%'
"""


# One process for several commands: Django takes a second to start.
RUN = """
import shlex, sys
from django.core.management import execute_from_command_line

for line in sys.argv[1:]:
    try:
        execute_from_command_line(["manage.py", *shlex.split(line)])
    except SystemExit as left:
        if left.code:
            sys.exit(f"{line}: status {left.code}")
"""


class Project:
    """A project with tasks, a topic and a JobField, and a database of its own."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder = folder
        self.database = psycopg.connect(
            **{**connection_params("default"), "dbname": database}, autocommit=True
        )
        self.write("removed_settings.py", SETTINGS.format(name=database))
        self.write("shop/__init__.py", "")
        self.write("shop/models.py", MODELS)
        self.write("shop/tasks.py", TASKS)
        self.write("shop/migrations/__init__.py", "")
        self.write("shop/migrations/0001_initial.py", MIGRATION)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def replaces(self, name: str, pattern: str, text: str) -> None:
        """Do what a step tells in words."""
        path = self.folder / name
        replaced, times = re.subn(pattern, text, path.read_text())
        assert times, (name, pattern)
        path.write_text(replaced)

    def manages(self, *lines: str) -> None:
        """Run commands of manage.py, each of which has to end well."""
        done = subprocess.run(
            [sys.executable, "-c", RUN, *lines],
            cwd=self.folder,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "removed_settings",
                "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]),
            },
            capture_output=True,
            text=True,
            timeout=60 * patience(),
            check=False,
        )
        assert 0 == done.returncode, f"{lines}: {done.stdout}{done.stderr}"

    def count(self, query: str) -> int:
        (number,) = self.database.execute(query).fetchone() or (-1,)
        return int(number)


def printed(heading: str) -> list[str]:
    """Return the commands of manage.py in a section, with a reader's yes."""
    text = section(PAGE.read_text("utf-8"), f"## {heading}")
    lines = re.findall(r"^ *\$ python manage\.py (.*)$", text, re.MULTILINE)
    return [
        " ".join([line, *(yes for word, yes in YES.items() if word in line.split())])
        for line in lines
    ]


@pytest.fixture
def project(tmp_path, empty_database):
    """A project that has not migrated yet."""
    made = Project(tmp_path, empty_database)
    yield made
    made.database.close()


@pytest.mark.slow
def test_a_removal_leaves_nothing_in_the_database(project):
    """Step by step, with jobs, a dead letter, messages and a JobField."""
    upgrade, removal = printed("Upgrade"), printed("Remove it")
    project.manages(*upgrade, f"shell -v0 -c {shlex.quote(ENQUEUE)}")
    project.manages("pgqueue_worker --drain")
    assert 1 == project.count("SELECT count(*) FROM pgqueue_dead_letter")
    assert 1 == project.count("SELECT count(*) FROM pgqueue_job")

    to_zero = removal.index("migrate pgqueue zero") + 1
    project.manages(*removal[:to_zero])
    for module in ("shop/models.py", "shop/migrations/0001_initial.py"):
        project.replaces(module, r"JobField\(", "models.BigIntegerField(")
        project.replaces(module, r"from django_pgqueue.*\n", "")
    project.write("shop/tasks.py", "")
    project.replaces("removed_settings.py", '    "django_pgqueue",\n', "")
    project.manages(*removal[to_zero:], "makemigrations --check", "migrate --check")

    assert 0 == project.count(OURS)
