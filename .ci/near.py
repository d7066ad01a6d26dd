"""
Run the tests near to what has changed: `make near`.

    near.py [ARGUMENT…]

For each changed or new file, these are the tests with its name and those that import
it, without the slow ones. Arguments are pytest's.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "django_pgqueue/"
# They take seconds and compare all files: names, imports, docs.
ALWAYS = ["tests/test_layout.py", "tests/test_docs.py"]


def main(*arguments: str) -> int:
    upstream = git("rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{upstream}")
    base = git("merge-base", "HEAD", *upstream) if upstream else ["HEAD"]
    changed = git("diff", "--name-only", "--diff-filter=d", *base)
    changed += git("ls-files", "--others", "--exclude-standard")
    near = sorted({*ALWAYS, *(test for name in changed for test in tests_of(name))})
    print(f"{len(changed)} changed files: {len(near)} files of tests", flush=True)
    command = [sys.executable, "-m", "pytest", "-m", "not slow", *near, *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def tests_of(name: str) -> Iterator[str]:
    """Yield the test files of one changed file."""
    path = Path(name)
    if name.startswith("tests/") and path.name.startswith("test_"):
        yield name
    if not name.startswith(PACKAGE) or path.suffix != ".py":
        return
    mirror = Path("tests", *path.parent.parts[1:], f"test_{path.name}")
    if (ROOT / mirror).exists():
        yield str(mirror)
    module = path.parent if path.name == "__init__.py" else path.with_suffix("")
    parent = r"\.".join(module.parts[:-1])
    pattern = rf"{parent}\.{module.name}\b|from {parent} import .*\b{module.name}\b"
    yield from git("grep", "-lP", pattern, "--", "tests/**test_*.py")


def git(*arguments: str) -> list[str]:
    """Return the lines that git prints, or none if it fails."""
    done = subprocess.run(
        ["git", *arguments],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
