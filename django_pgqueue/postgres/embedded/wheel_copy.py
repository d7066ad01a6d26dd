"""A copy of the wheel's binaries, where the server's user cannot run them in place."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from django_pgqueue.exceptions import EmbeddedServerError
from django_pgqueue.postgres.embedded.binaries import WAYS_OUT, Binaries
from django_pgqueue.postgres.embedded.server_user import SERVER_USER, run_as_server_user


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
