"""Habits that a machine keeps: docstrings, where SQL stands, where imports point."""

import ast
import re
import runpy
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "django_pgqueue"
MODULES = sorted(
    path.relative_to(PACKAGE)
    for path in PACKAGE.rglob("*.py")
    if "migrations" not in path.relative_to(PACKAGE).parts
)
# spark/ runs the same storage SQL on executors, with cursors of its own.
SQL_PACKAGES = {"postgres", "queues", "log", "pipeline", "spark"}
# What schedules/ stores; the rest of it says when, and to whom.
SQL_MODULES = {"schedules/store.py", "schedules/ticks.py"}
# pgqueue_bench works in a database, and on tables, of its own.
SQL_OF_THE_BENCH = Path("management/bench.py")


PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS = PYPROJECT["tool"]["importlinter"]["contracts"]


def parse(module):
    return ast.parse((PACKAGE / module).read_text(encoding="utf-8"))


def may_have_sql(module):
    if module.parts[0] in SQL_PACKAGES or module.as_posix() in SQL_MODULES:
        return True
    return module == SQL_OF_THE_BENCH


def test_sql_stands_where_its_locks_are_reviewed():
    """Only storage and postgres/ call execute() or executemany()."""
    calls = [
        f"{module}:{node.lineno}: {ast.unparse(node.func)}()"
        for module in MODULES
        if not may_have_sql(module)
        for node in ast.walk(parse(module))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"execute", "executemany"}
    ]

    assert [] == calls


def test_no_sql_reads_a_sequence_as_a_table():
    """Every 32nd nextval() shows there, for a moment, the value of 32 draws later."""
    found = [
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in sorted(PACKAGE.rglob("*"))
        if path.suffix in {".py", ".sql"}
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
        if re.search(r"(?<!pg_sequence_)last_value\b", line.partition("--")[0])
        and not line.lstrip().startswith("#")
    ]

    assert [] == found


def test_the_direction_of_imports_has_no_exceptions():
    """`make layers` checks the direction; no import is let through by a list."""
    assert CONTRACTS[0]["type"] == "layers"
    assert CONTRACTS[0]["exhaustive"] is True
    assert CONTRACTS[0]["exhaustive_ignores"] == ["migrations", "templates", "static"]
    assert [c["name"] for c in CONTRACTS if "ignore_imports" in c] == []


def test_every_storage_package_is_kept_from_models_and_settings():
    """A storage package that comes to exist is named in the second contract."""
    existing = {
        f"django_pgqueue.{name}"
        for name in ("postgres", "queues", "log", "pipeline")
        if (PACKAGE / name / "__init__.py").exists()
    }
    modules = {name.removesuffix(".py").replace("/", ".") for name in SQL_MODULES}
    existing |= {f"django_pgqueue.{name}" for name in modules}

    assert existing == set(CONTRACTS[1]["source_modules"])


def test_what_other_versions_get_is_there():
    """Each file and folder that .ci/versions.py names exists."""
    chosen = runpy.run_path(str(ROOT / ".ci" / "versions.py"))
    named = [*chosen["CHOSEN"], *chosen["LEFT_OUT"], *chosen["SHORT"]]

    assert [] == [name for name in named if not (ROOT / name).exists()]


def circle_of(imports):
    """Return a circle of files, each of which imports the one before it."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_files_import_each_other_in_a_circle():
    """Not even inside of a function, or for types alone."""
    graph = grimp.build_graph("django_pgqueue", exclude_type_checking_imports=False)
    imports = {
        name: graph.find_modules_directly_imported_by(name) for name in graph.modules
    }

    assert [] == circle_of(imports)
