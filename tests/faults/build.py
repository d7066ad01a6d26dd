"""Build: the folder that the processes of a run import the package from."""

from __future__ import annotations

import shutil
from pathlib import Path

# Of a build: functions that its database is to have in the place of those that the
# migrations made. Most have none.
FUNCTIONS = "functions.sql"

REPOSITORY = Path(__file__).resolve().parent.parent.parent


def make_build(package: Path, into: Path) -> Path:
    """
    Copy *package* into the new folder *into*, beside the tests; return the folder.

    A copy: what changes in the checkout during a run changes nothing in the run, and
    a broken build breaks nothing else. With what is compiled already: where
    PYTHONDONTWRITEBYTECODE is set, each process would compile all anew.
    """
    into.mkdir(parents=True)
    shutil.copytree(package, into / "django_pgqueue")
    (into / "tests").symlink_to(REPOSITORY / "tests")
    return into
