"""
Samples: the code blocks of a page, and how they are run.

A block belongs to the module whose file its first line names (``# accounts/tasks.py``),
or else the text right above it (``In `shop/models.py`:``). All others of a page are one
module, in their order.
"""

from __future__ import annotations

import ast
import builtins
import doctest
import re
import symtable
import sys
import textwrap
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

BLOCK = re.compile(r"^( *)```(python|pycon)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+)/(\w+)\.py\n")
TOLD_FILE = re.compile(r"`(\w+)/(\w+)\.py`[^\n]*:\n\n$")

# Where a page's code stands that names no file.
HOME = "shop.tasks"


@dataclass(frozen=True)
class Sample:
    """A block of code in a page."""

    page: Path
    line: int
    language: str
    source: str
    module: str

    @property
    def loaded(self) -> set[str]:
        """The global names that it takes from elsewhere."""
        if self.language == "pycon":
            examples = doctest.DocTestParser().get_examples(self.source)
            code = "".join(example.source for example in examples)
        else:
            code = self.source
        return set(_globals(symtable.symtable(code, str(self.page), "exec")))

    @property
    def bound(self) -> set[str]:
        """The global names that it defines."""
        if self.language == "pycon":
            return set()
        table = symtable.symtable(self.source, str(self.page), "exec")
        return {
            each.get_name()
            for each in table.get_symbols()
            if each.is_assigned() or each.is_imported() or each.is_namespace()
        }

    @property
    def classes(self) -> list[str]:
        """The classes that it defines at its top level."""
        if self.language == "pycon":
            return []
        body = ast.parse(self.source).body
        return [node.name for node in body if isinstance(node, ast.ClassDef)]

    def steps(self) -> list[Sample]:
        """Return the examples of a session, one by one; of others, itself."""
        if self.language == "python":
            return [self]
        lines = self.source.splitlines(keepends=True)
        starts = [
            each.lineno for each in doctest.DocTestParser().get_examples(self.source)
        ]
        return [
            replace(self, line=self.line + low, source="".join(lines[low:high]))
            for low, high in pairwise([*starts, len(lines)])
        ]

    def run(self, space: dict[str, Any]) -> None:
        """Run it in *space*; a session must also show what the page shows."""
        if self.language == "python":
            # Its own lines in tracebacks.
            source = "\n" * self.line + self.source
            exec(compile(source, str(self.page), "exec"), space)  # noqa: S102
            return
        session = doctest.DocTestParser().get_doctest(
            self.source, space, self.page.name, str(self.page), self.line
        )
        said: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
        runner.run(session, out=said.append, clear_globs=False)
        space.update(session.globs)
        assert not said, "".join(said)


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    is_top = table.get_type() == "module"
    for each in table.get_symbols():
        name = each.get_name()
        is_global = each.is_referenced() and (is_top or each.is_global())
        if is_global and not hasattr(builtins, name):
            yield name
    for child in table.get_children():
        yield from _globals(child)


def samples_of(page: Path) -> list[Sample]:
    """Return the samples of *page*, in its order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for block in BLOCK.finditer(text):
        source = textwrap.dedent(block[3])
        file = FILE.match(source) or TOLD_FILE.search(text, 0, block.start())
        is_named = file is not None and block[2] == "python"
        module = f"{file[1]}.{file[2]}" if file and is_named else HOME
        line = text.count("\n", 0, block.start()) + 1
        found.append(Sample(page, line, block[2], source, module))
    return found


def name_of(page: Path) -> str:
    """Return its path as tables have it."""
    return str(page.relative_to(ROOT))


def module_of(name: str) -> dict[str, Any]:
    """Return the names of the module *name*, which is made if there is none."""
    module = sys.modules.setdefault(name, types.ModuleType(name))
    above, _, last = name.rpartition(".")
    if above:
        setattr(sys.modules.setdefault(above, types.ModuleType(above)), last, module)
    return vars(module)


def needing(samples: Iterable[Sample], names: set[str]) -> list[Sample]:
    """Return those that use *names*, or what such a one has defined."""
    names = set(names)
    found = []
    for sample in samples:
        if sample.loaded & names:
            names |= sample.bound
            found.append(sample)
    return found
