"""
Environment: make this checkout's virtual environment, then run a command in it.

environment.sh calls it with a Python that runs, is new enough and has venv. The stamp
is written last: a folder without one is half-made, whatever stopped it, and is made
anew. The lock is shared while a command runs and exclusive while packages change, so
two makes in one checkout never pull packages from under each other. Commands inherit
it, and so does pip: a pip that outlives its make is waited for.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STAMP = "complete.json"
EXTRAS = "embedded,cli"
# What CI installs, by the series of Python; other series get the newest of all.
CONSTRAINTS = ROOT / ".ci" / "constraints"
FREE_MIB_MIN = {"example": 300, "dev": 2_000}
TICK_SECONDS = 10
FULL_DISK = re.compile("No space left on device|Disk quota exceeded")


class Refused(Exception):
    """What is in the way, and the way out."""


def main(group: str, *command: str) -> None:
    path = ROOT / (os.environ.get("VENV") or ".venv")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o666)

    hold(lock, fcntl.LOCK_SH, path)
    while changes := what_to_change(path, group):
        hold(lock, fcntl.LOCK_EX, path)
        # Somebody else may have done it while this make waited.
        if changes := what_to_change(path, group):
            make(path, group, changes, lock)
        hold(lock, fcntl.LOCK_SH, path)

    os.set_inheritable(lock, True)
    os.environ["VIRTUAL_ENV"] = str(path)
    os.environ["PATH"] = f"{path / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    os.environ.pop("PYTHONHOME", None)
    try:
        os.execvp(command[0], command)  # noqa: S606  # It takes this process over.
    except FileNotFoundError:
        raise Refused(f"{command[0]} is not found in {shown(path)}") from None


def hold(lock: int, kind: int, path: Path) -> None:
    """Take the lock, or change its kind; say so when that has to wait."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        say(
            f"Waiting for another make: it "
            f"{'uses' if kind == fcntl.LOCK_EX else 'changes'} {shown(path)}."
        )
        fcntl.flock(lock, kind)


# What is there, and what is wanted ---------------------------------------------------


@dataclass(frozen=True)
class Stamp:
    """What an environment is complete for."""

    place: list[str]  # Its path and the checkout's: each names the other by it.
    python: str
    django: str  # A series, or nothing: the newest when it was made.
    group: str
    requirements: str


def what_to_change(path: Path, group: str) -> str:
    """
    Why the environment at *path* will not do; empty when it will.

    PYTHON and DJANGO count only when given: an environment that is there serves with
    what it has.
    """
    stamp = read_stamp(path)
    if stamp is None:
        return "it is not complete" if is_filled(path) else "there is none"
    if is_of_another_python(stamp):
        return f"it has Python {stamp.python}, not {platform.python_version()}"
    django = os.environ.get("DJANGO")
    if django and django != stamp.django:
        return f"it was made for Django {stamp.django or '(newest)'}, not {django}"
    if stamp.requirements != requirements_digest():
        return "what pyproject.toml requires, or what CI installs, has changed"
    if group not in groups_of(stamp.group):
        return f"it has only what {stamp.group!r} needs"
    return ""


def read_stamp(path: Path) -> Stamp | None:
    """The stamp of *path*; None when there is no good one, or Python does not run."""
    try:
        stamp = Stamp(**json.loads((path / STAMP).read_text()))
        subprocess.run([path / "bin/python", "-c", ""], check=True, capture_output=True)
    except (OSError, ValueError, TypeError, subprocess.CalledProcessError):
        return None
    return stamp if stamp.place == [str(path), str(ROOT)] else None


def is_of_another_python(stamp: Stamp) -> bool:
    return bool(os.environ.get("PYTHON")) and (
        stamp.python != platform.python_version()
    )


def is_filled(path: Path) -> bool:
    return path.is_dir() and any(path.iterdir())


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def requirements_digest() -> str:
    """Changes with whatever an installation depends on; not with, say, ruff's rules."""
    tables = pyproject()
    relevant = [
        tables["build-system"],
        tables["project"],
        tables["dependency-groups"],
        tables["tool"]["hatch"],
        *(path.read_text() for path in sorted(CONSTRAINTS.glob("*.txt"))),
    ]
    return hashlib.sha256(json.dumps(relevant).encode()).hexdigest()


def groups_of(group: str) -> set[str]:
    """*group* and those that it includes."""
    members = pyproject()["dependency-groups"].get(group, [])
    included = [item["include-group"] for item in members if isinstance(item, dict)]
    return {group}.union(*map(groups_of, included))


def requirements(group: str) -> list[str]:
    """Read here, since `pip install --group` is younger than many a pip."""
    tables = pyproject()["dependency-groups"]
    members = [item for name in sorted(groups_of(group)) for item in tables[name]]
    return [item for item in members if isinstance(item, str)]


# Making it ---------------------------------------------------------------------------


def make(path: Path, group: str, why: str, lock: int) -> None:
    """Bring *path* from any state to complete. The lock is exclusive here."""
    started = time.monotonic()
    stamp = read_stamp(path)
    if stamp and is_of_another_python(stamp):
        stamp = None  # An environment cannot change its Python.
    python = stamp.python if stamp else platform.python_version()
    django = os.environ.get("DJANGO") or (stamp.django if stamp else "")
    if stamp and group in groups_of(stamp.group):
        group = stamp.group  # What it has beyond *group*, it keeps.
    check_django(django, python)

    say(f"{'Updating' if stamp else 'Making'} the environment {shown(path)}: {why}.")
    if stamp is None:
        check_space(path, group)
        clear(path)
        step(
            f"Python {python}",
            [sys._base_executable, "-m", "venv", path],
            path=path,
            group=group,
            lock=lock,
        )
    (path / STAMP).unlink(missing_ok=True)
    command = [path / "bin/python", "-m", "pip", "install", "--quiet", "--no-input"]
    command += ["--editable", f"{ROOT}[{EXTRAS}]", *requirements(group)]
    if django:
        command.append(f"Django=={django}.*")
    constraints = CONSTRAINTS / f"{python.rpartition('.')[0]}.txt"
    if constraints.exists():
        command += ["--constraint", constraints]
    step(f"the packages of {group!r}", command, path=path, group=group, lock=lock)

    made = Stamp([str(path), str(ROOT)], python, django, group, requirements_digest())
    partial = path / f"{STAMP}.partial"
    partial.write_text(json.dumps(asdict(made), indent=1))
    partial.rename(path / STAMP)
    say(f"  ready after {time.monotonic() - started:.0f} s")


def check_django(django: str, python: str) -> None:
    if not re.fullmatch(r"(\d+\.\d+(\.\d+)?)?", django):
        raise Refused(f"DJANGO={django}: give a series, such as DJANGO=5.2")
    if django[:2] == "6." and int(python.split(".")[1]) < 12:
        raise Refused(
            f"DJANGO={django} needs Python 3.12 or newer, and this is {python}. "
            f"Name one: make PYTHON=python3.13 …"
        )


def check_space(path: Path, group: str) -> None:
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    if mib_free(existing) + mib_used(path) < FREE_MIB_MIN[group]:
        raise no_space(path, group)


def no_space(path: Path, group: str) -> Refused:
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    temporary = Path(tempfile.gettempdir())
    return Refused(
        f"No disk space for the environment {shown(path)}: it needs about "
        f"{FREE_MIB_MIN[group]} MiB. Free are {mib_free(existing)} MiB there and "
        f"{mib_free(temporary)} MiB in {temporary}, where pip unpacks.\n"
        f"Make room, or use another disk: make VENV=/other/venv TMPDIR=/other …"
    )


def mib_free(folder: Path) -> int:
    return shutil.disk_usage(folder).free >> 20


def mib_used(folder: Path) -> int:
    files = (file for file in folder.rglob("*") if file.is_file())
    return sum(file.lstat().st_size for file in files) >> 20


def clear(path: Path) -> None:
    """Empty *path*, which may be a link; refuse a folder that is no environment."""
    ours = path.parent == ROOT and path.name.startswith(".venv")
    if path.exists() and not path.is_dir():
        raise Refused(
            f"{path} is not a folder. Remove it, or make VENV=/another/folder"
        )
    if is_filled(path) and not ours and not (path / "pyvenv.cfg").exists():
        raise Refused(
            f"{path} holds something else than a Python environment, which would be "
            f"deleted. Name another folder: make VENV=…"
        )
    path.mkdir(parents=True, exist_ok=True)
    # pyvenv.cfg goes last: what is left of an interrupted clearing can still be told.
    for child in sorted(path.iterdir(), key=lambda child: child.name == "pyvenv.cfg"):
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink()


def step(title: str, command: list[Any], *, path: Path, group: str, lock: int) -> None:
    """Run *command* and show the time that passes; what it says, only if it fails."""
    done = threading.Event()

    def tick() -> None:
        started = time.monotonic()
        while not done.wait(TICK_SECONDS):
            say(f"  {title}, {time.monotonic() - started:.0f} s")

    say(f"  {title}")
    threading.Thread(target=tick, daemon=True).start()
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USER": "0"}
    finished = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        pass_fds=[lock],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    done.set()
    if finished.returncode:
        say(finished.stdout)
        if FULL_DISK.search(finished.stdout):
            raise no_space(path, group)
        raise Refused(f"{title} failed, status {finished.returncode}: see above.")


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT) if ROOT in path.parents else path)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Refused as refused:
        sys.exit(str(refused))
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. The next make brings the environment in order.")
    except OSError as error:
        sys.exit(f"The environment cannot be made: {error}")
