"""
Run the tests that are near to what has changed: `make near`.

    near.py [ARGUMENT…]

Of each file that differs from the upstream branch, or is new: the tests of its name,
and those that import it. The slow ones are left out. Arguments are pytest's.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "django_pgqueue"
# Quick, and about every file: names, lines, docs.
ALWAYS = ["tests/test_layout.py", "tests/test_docs.py"]


def main(*arguments: str) -> int:
    changed = changed_files()
    near = sorted({*ALWAYS, *near_to(changed)})
    print(f"{len(changed)} changed files: {len(near)} files of tests", flush=True)
    command = [sys.executable, "-m", "pytest", "-m", "not slow", *near, *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def changed_files() -> list[str]:
    """Return what differs from the upstream branch, or from the last commit."""
    upstream = git("rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{upstream}")
    base = git("merge-base", "HEAD", *upstream) if upstream else ["HEAD"]
    differing = git("diff", "--name-only", "--diff-filter=d", *base)
    return [*differing, *git("ls-files", "--others", "--exclude-standard")]


def near_to(changed: list[str]) -> Iterator[str]:
    """Yield the files of tests that are near to *changed*."""
    modules = [name for name in changed if name.endswith(".py")]
    of_package = [name for name in modules if name.startswith(f"{PACKAGE}/")]
    named = re.compile("|".join(map(import_of, of_package)) or "(?!)")
    yield from (name for name in modules if is_test(name))
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        name = str(path.relative_to(ROOT))
        text = path.read_text("utf-8")
        mirrored = {mirror(module) for module in of_package}
        if name in mirrored or named.search(text):
            yield name


def mirror(module: str) -> str:
    """Return where the tests of a module stand."""
    path = Path(module)
    return str(Path("tests", *path.parent.parts[1:], f"test_{path.name}"))


def import_of(module: str) -> str:
    """Return a pattern of the imports of a module."""
    path = Path(module).with_suffix("")
    *above, name = path.parts[:-1] if path.name == "__init__" else path.parts
    home = r"\.".join(above)
    if not home:
        return rf"from {name} import|import {name}\b"
    return rf"{home}\.{name}\b|from {home} import \(?[\w\s,]*\b{name}\b"


def is_test(name: str) -> bool:
    return name.startswith("tests/") and Path(name).name.startswith("test_")


def git(*arguments: str) -> list[str]:
    """Return the lines that git prints; none where it refuses."""
    done = subprocess.run(
        ["git", *arguments],  # noqa: S607  # Whichever there is.
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
