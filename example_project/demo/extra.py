"""
Extra: what Spark needs and this environment lacks, installed by pip.

    python -m example_project.demo.extra REQUIREMENT…

A process of its own, so that it is ended like any other. Two demonstrations at once in
one environment take turns. pip writes the list of a package's files when it has
installed all of them; a package without one counts as missing.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from django_pgqueue.spark.java import installed
from example_project.demo.project import CHECKOUT

NAME = re.compile(r"[A-Za-z0-9._-]+")


def main(requirements: Sequence[str]) -> int:
    """Install those that are missing; return pip's exit status."""
    with Path(sys.prefix, ".demo-extra.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Another demonstration may have done it meanwhile.
        wanted = missing(requirements)
        if not wanted:
            return 0
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input"]
        command += ["--disable-pip-version-check", "--progress-bar", "off", *wanted]
        return subprocess.run(command, check=False).returncode


def requirements_of_spark() -> list[str]:
    """Return what the extra [spark] requires, and a Java where there is none."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    java, _ = installed(os.environ)
    return [*extras["spark"], *([] if java else extras["spark-jre"])]


def missing(requirements: Sequence[str]) -> list[str]:
    """Return those whose package is not installed."""
    return [each for each in requirements if not is_installed(name_of(each))]


def name_of(requirement: str) -> str:
    """Return the package's name: of "pyspark>=4.1,<5", pyspark."""
    found = NAME.match(requirement)
    assert found is not None
    return found[0]


def is_installed(name: str) -> bool:
    """Whether all files of the package *name* are there."""
    try:
        return metadata.distribution(name).files is not None
    except metadata.PackageNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
