"""The documentation says what the code does: nothing is left out, nothing invented."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Iterator
from dataclasses import MISSING, fields
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand
from django.db import models
from django.dispatch import Signal

import django_pgqueue
from django_pgqueue import conf, exceptions, signals, testing
from django_pgqueue.findings.registry import REGISTRY
from django_pgqueue.management.cli.doctor import CHAPTERS
from django_pgqueue.management.commands.pgqueue import SUBCOMMANDS, actions_of
from django_pgqueue.management.commands.pgqueue_pipeline import (
    Command as PipelineCommand,
)
from django_pgqueue.models import (
    ArchivedJob,
    ConsumerGroup,
    EnqueuedHour,
    Export,
    Failure,
    FailureHour,
    Job,
    LogDay,
    LogState,
    Message,
    PipelineRun,
    Position,
    Queue,
    Step,
    Subscription,
    TaskHour,
    Topic,
    Worker,
    Workflow,
)
from django_pgqueue.models.job import ArchivedState, LiveState, Reason
from django_pgqueue.models.workflow import StepState, WorkflowState
from django_pgqueue.options.retry import Retry
from django_pgqueue.spark import options
from django_pgqueue.spark.option_table import Whole, Word
from django_pgqueue.spark.write import options as write_options
from django_pgqueue.tasks.context import JobContext
from django_pgqueue.tasks.result import JobResult
from django_pgqueue.tasks.task import Task
from django_pgqueue.tasks.unique import Unique

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PACKAGE = ROOT / "django_pgqueue"

README = ROOT / "README.md"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """Return what stands under *heading*, up to the next one of its level."""
    level = heading.index(" ")
    found = re.search(
        rf"^{re.escape(heading)}$(.*?)(?=^#{{1,{level}}} |\Z)",
        text,
        re.MULTILINE | re.DOTALL,
    )
    assert found, f"no heading {heading!r}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """Return the cells of every table in *text*, without heads."""
    tables = re.findall(r"^\|.*\n\|[ \-|]+\|\n((?:\|.*\n?)*)", text, re.MULTILINE)
    return [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for table in tables
        for line in table.splitlines()
    ]


def tables(text: str) -> list[str]:
    """Return the first cell of every row of the tables in *text*."""
    return [row[0] for row in rows(text)]


def names_in(cell: str) -> list[str]:
    """Return what stands between backticks."""
    return re.findall(r"`([^`]+)`", cell)


def first_names(text: str) -> set[str]:
    """Return the names in the first cell of every row."""
    return {name for row in rows(text) for name in names_in(row[0])}


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """Return the code blocks of *page*, also those inside of lists."""
    kinds = "|".join(languages)
    for found in re.finditer(
        rf"^( *)```(?:{kinds})\n(.*?)^\1```$", read(page), re.MULTILINE | re.DOTALL
    ):
        yield textwrap.dedent(found[2])


# Code and links ----------------------------------------------------------------------


def imports_of_ours(page: Path) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import from the package in a code block."""
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            if node.module.partition(".")[0] == "django_pgqueue":
                yield from ((node.module, name.name) for name in node.names)


def test_what_the_pages_import_exists():
    """An import from the package in a code block finds its names."""
    assert [] == [
        f"{name_of(page)}: from {module} import {name}"
        for page in PAGES
        for module, name in imports_of_ours(page)
        if not hasattr(importlib.import_module(module), name)
    ]


def links(page: Path) -> list[str]:
    """Return where the relative links of *page* lead."""
    text = re.sub(r"^( *)```.*?^\1```$", "", read(page), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    return [link for link in found if ":" not in link]


def test_links_between_pages_lead_somewhere():
    """Each relative link names a file that exists."""
    assert [] == [
        f"{name_of(page)}: {link}"
        for page in PAGES
        for link in links(page)
        if not (page.parent / link).exists()
    ]


def test_the_contents_have_every_page():
    """index.md links each once; the decisions have one link together."""
    linked = re.findall(r"^- .*", read(DOCS / "index.md"), re.MULTILINE)
    pages = [str(page.relative_to(DOCS)) for page in DOCS.glob("*/*.md")]

    assert sorted([*pages, "contributing/decisions/README.md"]) == sorted(
        link for line in linked for link in re.findall(r"\]\((.*?)\)", line)
    )


def test_files_that_the_pages_name_exist():
    """A path in backticks that looks like one of ours is one."""
    missing = {
        f"{name_of(page)}: {path}"
        for page in PAGES
        for path in re.findall(
            r"`((?:tests|example_project|docs|django_pgqueue)/[\w./-]*)`", read(page)
        )
        if not (ROOT / path).exists()
    }

    assert set() == missing


# Reference: settings -----------------------------------------------------------------


def said(value: object) -> str:
    """Return a default or a limit as settings.md writes it."""
    if isinstance(value, bool) or value is None:
        return f"`{value}`"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.10g}"
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, timedelta):
        return f"{value.days} d"
    if isinstance(value, tuple) and value:
        return '`("' + '", "'.join(value) + '",)`'
    return f"`{value}`"


def default_of(item) -> object:
    return item.default if item.default is not MISSING else item.default_factory()


def test_every_setting_is_documented_with_its_default_and_limits():
    """settings.md has exactly the fields of conf.Settings."""
    documented = {
        names_in(row[0])[0]: (row[1], row[2])
        for row in rows(read(REFERENCE / "settings.md"))
        if len(row) == 4
    }
    expected = {}
    for item in fields(conf.Settings):
        default = default_of(item)
        limits = ""
        if item.name in conf.LIMITS:
            low, high = conf.LIMITS[item.name]
            limits = f"{said(low)} to {said(high)}"
        see_below = isinstance(default, (conf.Email, conf.Retention, conf.Spark))
        if see_below or item.name == "redact":
            expected[item.name.upper()] = ("see below", limits)
        else:
            expected[item.name.upper()] = (said(default), limits)

    assert expected == documented


@pytest.mark.parametrize("kind", [conf.Retention, conf.Spark, conf.Email])
def test_keys_of_a_setting_are_documented_with_their_defaults(kind):
    """Each key, and no other."""
    text = section(read(REFERENCE / "settings.md"), f"## {kind.__name__.upper()}")
    documented = {names_in(row[0])[0]: row[1] for row in rows(text)}
    expected = {item.name: said(default_of(item)) for item in fields(kind)}

    assert expected == documented


@pytest.mark.parametrize(
    "page, table",
    [("spark.md", options.READS), ("spark-write.md", write_options.WRITES)],
)
def test_options_of_spark_are_documented(page, table):
    """Exactly those of the table, with their words and their limits."""
    text = section(read(REFERENCE / page), "## Options")
    told = {name: " ".join(row) for row in rows(text) for name in names_in(row[0])}

    assert {option.name for option in table} == told.keys()
    for option in table:
        if isinstance(option.read, Whole):
            limits = f"{option.read.low:,} to {option.read.high:,}"
            assert limits in told[option.name], option.name
        if isinstance(option.read, Word):
            assert {*option.read.words} <= {*names_in(told[option.name])}, option.name


# Reference: events and exceptions ----------------------------------------------------


def test_every_signal_is_documented():
    """events.md has a row for each signal, and for nothing else."""
    existing = {n for n, value in vars(signals).items() if isinstance(value, Signal)}

    assert existing == first_names(read(REFERENCE / "events.md"))


def exception_tree() -> dict[str, tuple[str, str | None]]:
    """Return each exception's parent of ours, and the built-in one that it also is."""
    tree = {}
    for name, kind in vars(exceptions).items():
        if not (inspect.isclass(kind) and issubclass(kind, exceptions.PgQueueError)):
            continue
        bases = [base.__name__ for base in kind.__bases__]
        tree[name] = (bases[0], bases[1] if len(bases) > 1 else None)
    return tree


def test_the_tree_of_exceptions_is_that_of_the_code():
    """Every exception, below its parent, with the built-in one that it also is."""
    (block,) = blocks(REFERENCE / "exceptions.md", "text")
    path: list[str] = []
    documented = {}
    for line in block.splitlines():
        found = re.match(r"(\W*)(\w+)(?:\s+\((\w+)\))?", line)
        assert found, line
        depth = 0 if not found[1] else 1 if found[1].startswith((" ├", " └")) else 2
        path[depth:] = [found[2]]
        documented[found[2]] = (path[depth - 1] if depth else "Exception", found[3])

    assert exception_tree() == documented


# Reference: the API ------------------------------------------------------------------


def test_every_public_name_is_documented():
    """A heading of its own in api.md, or a line of the tree of exceptions."""
    api = read(REFERENCE / "api.md")
    headed = {
        name.strip()
        for line in re.findall(r"^## (.*)$", api, re.MULTILINE)
        for name in line.split(",")
    }
    public = set(django_pgqueue.__all__)

    assert public - exception_tree().keys() == headed & public
    assert exception_tree().keys() <= public


@pytest.mark.parametrize(
    "page, heading, function",
    [
        ("api", "## task", django_pgqueue.task),
        ("api", "### using", Task.using),
        ("api", "## Retry", Retry),
        ("api", "## Unique", Unique),
        ("subscriptions", "## subscribe", django_pgqueue.subscribe),
    ],
    ids=["task", "using", "Retry", "Unique", "subscribe"],
)
def test_every_option_is_documented(page, heading, function):
    """The table has the keyword arguments of the function, and no other."""
    text = section(read(REFERENCE / f"{page}.md"), heading)
    table = re.split(r"\n\n", text[text.index("| Option") :])[0]
    parameters = inspect.signature(function).parameters.values()
    existing = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}

    assert existing == first_names(table + "\n")


@pytest.mark.parametrize(
    "heading, kind",
    [("## JobContext", JobContext), ("## JobResult", JobResult)],
    ids=["JobContext", "JobResult"],
)
def test_every_attribute_is_documented(heading, kind):
    """The first table has the public attributes and methods, and no other."""
    text = section(read(REFERENCE / "api.md"), heading).split("\n\n\n")[0]
    table = text[: text.index("\n\n", text.index("|"))] + "\n"
    existing = {name for name in dir(kind) if not name.startswith("_")}

    assert existing == {name.removesuffix("()") for name in first_names(table)}


def test_the_testing_kit_is_documented():
    """Each function of django_pgqueue.testing, with its parameters."""
    text = section(read(REFERENCE / "api.md"), "## testing")
    existing = {
        name: set(inspect.signature(getattr(testing, name)).parameters)
        for name in testing.__all__
        if inspect.isfunction(getattr(testing, name))
    }
    documented = {
        name: set(re.findall(r"(\w+)(?:[=,)]|$)", parameters))
        for name, parameters in re.findall(r"^`(\w+)\((.*?)\)`", text, re.MULTILINE)
    }

    assert existing.keys() == documented.keys()
    for name, parameters in existing.items():
        assert parameters <= documented[name], name


# Reference: commands -----------------------------------------------------------------


def our_commands() -> list[str]:
    return [name for name, app in get_commands().items() if app == "django_pgqueue"]


def test_every_command_is_documented():
    """commands.md has a heading for each command, and for nothing else."""
    headed = re.findall(r"^## (\w+)$", read(REFERENCE / "commands.md"), re.MULTILINE)

    assert sorted(our_commands()) == sorted(headed)


def test_every_subcommand_is_documented_with_its_options():
    """A row in the table and a heading for each, and a table of its options."""
    text = section(read(REFERENCE / "commands.md"), "## pgqueue")
    listed = [row[0] for row in rows(text) if row[0].startswith("[`")]
    assert list(SUBCOMMANDS) == [names_in(cell)[0] for cell in listed]

    for name in SUBCOMMANDS:
        parser = ArgumentParser(add_help=False)
        SUBCOMMANDS[name].add_arguments(parser)
        existing = {
            option
            for each in (parser, *actions_of(parser).values())
            for option in each._option_string_actions
            if option.startswith("--") and option != "--help"
        }
        heading = "pause and resume" if name in ("pause", "resume") else name
        own = section(text, f"### {heading}")
        if name != "resume":
            assert existing == set(re.findall(r"`(--[a-z-]+)", "".join(tables(own))))


def test_every_check_of_the_doctor_is_documented():
    """As findings call them."""
    text = section(read(REFERENCE / "commands.md"), "### doctor")

    assert CHAPTERS
    assert set(REGISTRY) == {
        name for name in first_names(text) if not name.startswith("-")
    }


def test_every_subcommand_of_the_pipeline_is_documented_with_its_options():
    """A row for each, and one table with the options of all."""
    text = section(read(REFERENCE / "commands.md"), "## pgqueue_pipeline")
    existing = set()
    for module in PipelineCommand.subcommands.values():
        parser = ArgumentParser(add_help=False)
        module.add_arguments(parser)
        existing |= {
            option
            for action in parser._actions
            if action.help != SUPPRESS
            for option in action.option_strings
        }

    assert list(PipelineCommand.subcommands) == [
        cell.strip("`").split()[0] for cell in tables(text)[:4]
    ]
    assert existing == set(re.findall(r"`(--?[a-z-]+)", "".join(tables(text)[4:])))


# Those with subcommands are looked at above.
@pytest.mark.parametrize(
    "name", [n for n in our_commands() if n not in ("pgqueue", "pgqueue_pipeline")]
)
def test_every_option_of_a_command_is_documented(name):
    """The table of a command has the options that it adds to Django's."""
    text = section(read(REFERENCE / "commands.md"), f"## {name}")
    parser = load_command_class("django_pgqueue", name).create_parser("manage.py", name)
    djangos = BaseCommand().create_parser("manage.py", name)._option_string_actions
    existing = set(parser._option_string_actions) - set(djangos)
    table = re.split(r"\n\n", text[text.index("| Option") :])[0]

    assert existing == set(re.findall(r"`(--[a-z-]+)", table))


def test_every_log_line_of_the_worker_is_documented():
    """The first word of each line that the worker logs."""
    source = "\n".join(
        read(path)
        for path in [*(PACKAGE / "worker").rglob("*.py"), PACKAGE / "telemetry.py"]
    )
    how = "debug|info|warning|error|exception|log"
    calls = re.findall(rf"logger\.(?:{how})\((?:\s*level,)?\s*\"([a-z]+) ", source)
    text = section(read(REFERENCE / "commands.md"), "### Log lines")
    documented = {line.split()[0] for line in first_names(text)}
    # A receiver's failure is told with its name; two more are told in passing.
    in_passing = {"receiver", "closing", "row"}

    assert set(calls) - in_passing == documented


# Reference: schema, states, limits ---------------------------------------------------


def columns(*kinds: type[models.Model]) -> set[str]:
    return {field.column for kind in kinds for field in kind._meta.fields}


def test_every_column_of_a_job_is_documented():
    """schema.md has exactly the columns of the table."""
    text = section(read(REFERENCE / "schema.md"), "## pgqueue_job")
    table = text[: text.index("### What is refused")]

    assert columns(Job) == first_names(table)


def test_every_column_of_the_other_tables_is_documented():
    """What archive and dead letters add to a job; queues; workers."""
    text = read(REFERENCE / "schema.md")
    archive = section(text, "## pgqueue_archived_job")
    queues = section(text, "## pgqueue_queue")
    workers = section(text, "## pgqueue_worker")

    assert columns(ArchivedJob) - columns(Job) == first_names(archive)
    assert columns(Queue) == first_names(queues)
    assert columns(Worker) <= set(names_in(workers))
    for kind in (
        PipelineRun,
        TaskHour,
        Failure,
        FailureHour,
        EnqueuedHour,
        Export,
        Topic,
        Message,
        LogDay,
        LogState,
        Subscription,
        ConsumerGroup,
        Position,
        Workflow,
        Step,
    ):
        own = section(text, f"## {kind._meta.db_table}")
        # None: a key of several columns.
        assert columns(kind) - {None} == first_names(own)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "page",
    [
        REFERENCE / "schema.md",
        REFERENCE / "topics.md",
        DOCS / "howto" / "enqueue-from-sql.md",
    ],
    ids=name_of,
)
def test_sql_in_the_pages_runs(page, new_cursor):
    """Each statement that a reader copies is accepted by the migrated schema."""
    cursor = new_cursor()
    cursor.execute("CREATE TABLE shop_order (id bigserial, customer text)")
    try:
        for block in blocks(page, "sql", "postgresql"):
            cursor.execute(block)
            cursor.execute("DELETE FROM pgqueue_job")
    finally:
        cursor.execute("ROLLBACK")
        cursor.execute("DROP TABLE shop_order")
        cursor.execute("DROP FUNCTION IF EXISTS receipt_for_order")


def test_every_state_and_reason_is_documented():
    """states.md has those that rows can show, and no other."""
    text = read(REFERENCE / "states.md")

    assert set(LiveState.values) == first_names(
        section(text, "## Live: a row of pgqueue_job")
    )
    assert {*ArchivedState.values, "dead"} == first_names(section(text, "## Ended"))
    assert set(Reason.values) == first_names(
        section(text, "## Reasons of a dead letter")
    )
    workflows = section(text, "## Workflows").partition("\n### ")[0]
    assert set(WorkflowState.values) == first_names(workflows)
    assert set(StepState.values) == first_names(section(text, "### Steps"))


def constants_in_limits_md() -> Iterator[tuple[str, str]]:
    for row in rows(read(REFERENCE / "limits.md")):
        for name in names_in(row[-1]):
            yield name, row[1]


def limit(name: str) -> str:
    """Return the value of a constant, or of a setting, as limits.md writes it."""
    if "." in name:
        module, _, constant = name.rpartition(".")
        value = getattr(importlib.import_module(f"{PACKAGE.name}.{module}"), constant)
    else:
        value = getattr(conf.Settings(), name.lower())
    return f"{value.days if isinstance(value, timedelta) else value:,.10g}"


def test_limits_are_told_as_the_code_has_them():
    """The number in limits.md is the value of the constant, or of the setting."""
    assert [] == [
        f"{name} is {limit(name)}, told as {told}"
        for name, told in constants_in_limits_md()
        if limit(name) not in re.findall(r"-?\d+(?:,\d{3})*(?:\.\d+)?", told)
    ]
