"""Typing: editors and mypy know the arguments and the result of a task."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

# Each line with a comment "E: …" must be an error that says this; "N: …" is what
# reveal_type() answers; no other line may say anything.
PROGRAM = """
from collections.abc import Callable
from datetime import timedelta

from django_pgqueue import (
    Accumulate, Call, Message, Retry, chain, chord, group, subscribe, task
)
from django_pgqueue.tasks.context import JobContext


@task
def bare(order_id: int, lang: str = "en") -> str:
    return lang


@task(queue="mail", priority=10, retries=5, timeout="60s", settle="batched")
def with_options(order_id: int, *, tenant_id: int) -> list[int]:
    return [order_id, tenant_id]


@task(takes_context=True, retries=Retry(max_attempts=3))
def with_context(ctx: JobContext, path: str) -> None:
    reveal_type(ctx.attempt)  # N: "int"


@task
async def bare_async(order_id: int) -> str:
    return ""


@task(takes_context=True, atomic=False, middleware=["shop.middleware.log"])
async def with_context_async(ctx: JobContext, path: str) -> int:
    return 1


@task(accumulate=Accumulate(size=100), queue="mail", takes_context=True)
def with_calls(ctx: JobContext, calls: list[Call]) -> int:
    return len(calls)


@subscribe("orders.*", where={"country": "FR"}, start="earliest", archive=False)
def on_order(message: Message) -> int:
    return 1


reveal_type(on_order.delay)  # N: "def (message: django_pgqueue.log.message.Messa
with_calls.using(key="k").delay(1, anything=True)
reveal_type(with_calls.delay(1))  # N: JobResult[int]"

# Right calls.
bare.delay(1)
bare.delay(1, "de")
bare.delay(order_id=1, lang="de")
bare.enqueue(1)
bare.using(queue="q", run_after=timedelta(hours=1), headers={"a": 1}).delay(1, lang="x")
bare.on_commit().delay(1)
bare.apply_async((1,), {"lang": "de"}, countdown=10)
bare.bulk([{"order_id": 1}, (2, "de"), [3]])
with_options.delay(1, tenant_id=2)
with_context.delay("x")
with_context("x")
bare.on_commit().bulk([(1,)])
bare.spread("24h", by="order_id").bulk([(1,)])
bare.using(queue="q").spread(timedelta(hours=1), by=["order_id", "lang"]).delay(1)
with_context_async.delay("x")


async def calls() -> None:
    await bare.adelay(1, lang="de")
    await bare.on_commit().adelay(1)
    reveal_type(await bare.adelay(1))  # N: JobResult[str]"
    reveal_type(await bare.abulk([(1,)]))  # N: "list[django_pgqueue.tasks.result.JobR
    reveal_type(await bare_async(1))  # N: "str"
    reveal_type(bare_async.delay(1).get(timeout=1))  # N: "str"
    reveal_type(await bare_async.delay(1).aget())  # N: "str"
    reveal_type(bare.delay(1).edit(args=[2]).retry())  # N: "bool"
    reveal_type(bare.adelay)  # N: "def (order_id: int, lang: str =) -> typing.Corouti
    reveal_type(bare.delay(1).arefresh)  # N: "def () -> typing.Coroutine[Any, Any, dj
    reveal_type(await bare.delay(1).arefresh())  # N: JobResult[str]"
    reveal_type(await bare.delay(1).aedit(args=[2]))  # N: JobResult[str]"
    reveal_type(await bare.on_commit().abulk([]))  # N: "None"
    await bare.adelay("1")  # E: Argument 1 has incompatible type "str"
    await bare.using().aenqueue()  # E: Too few arguments

# Steps: what comes before one is known to the run alone.
reveal_type(bare.s(lang="de"))  # N: Signature[str]"
reveal_type(bare.si(1, "de"))  # N: Signature[str]"
reveal_type(bare.si(1) | with_options.s(tenant_id=2))  # N: canvas.Chain"
reveal_type(group(bare.si(n) for n in range(3)))  # N: canvas.Group"
steps = chord([bare.si(1), bare.si(2)], with_context.s(), on_error=bare.si(3))
reveal_type(steps.delay(key="k"))  # N: WorkflowResult"
reveal_type(chain(bare.si(1), name="n").delay().get(timeout="1s"))  # N: "Any"
reveal_type([step.state for step in steps.delay().steps()])  # N: "list[str]"
with_context.si("x")
bare.si("1")  # E: Argument 1 to "si" of "Enqueuer"
bare.si()  # E: Missing positional argument "order_id"
chord([bare.si(1)], bare)  # E: Argument 2 to "chord"
chain(bare.si(1), on_error=steps)  # E: Argument "on_error" to "chain"

# What comes back.
reveal_type(bare(1))  # N: "str"
reveal_type(bare.delay(1))  # N: JobResult[str]"
reveal_type(bare.delay(1).result)  # N: "str | None"
reveal_type(bare.using(queue="q").delay(1).result)  # N: "str | None"
reveal_type(bare.bulk([])[0].result)  # N: "str | None"
reveal_type(bare.spread("24h").bulk([])[0].result)  # N: "str | None"
reveal_type(bare.on_commit().delay(1))  # N: "None"
reveal_type(with_context_async.delay("x").result)  # N: "int | None"
reveal_type(with_options.delay(1, tenant_id=2).result)  # N: "list[int] | None"

# Wrong calls.
bare.delay("1")  # E: Argument 1 to "delay" of "Enqueuer" has incompatible
bare.delay()  # E: Missing positional argument "order_id" in call to "delay"
bare.delay(1, langg="de")  # E: Unexpected keyword argument "langg" for "delay"
bare.enqueue("1")  # E: Argument 1 has incompatible type "str"; expected "int"
bare("1")  # E: Argument 1 to "__call__" of "Task"
bare.using(queue="q").delay("1")  # E: Argument 1 to "delay" of "Enqueuer"
bare.on_commit().delay("1")  # E: Argument 1 to "delay" of "Deferred"
bare.using(queu="q")  # E: Unexpected keyword argument "queu" for "using"
bare.spread()  # E: Missing positional argument "over" in call to "spread" of "Enqueuer"
bare.apply_async(1)  # E: Argument 1 to "apply_async"
bare.bulk([1])  # E: List item 0 has incompatible type "int"
with_options.delay(1)  # E: Missing named argument "tenant_id" for "delay" of "Enqueuer"
bare_async.delay("1")  # E: Argument 1 to "delay" of "Enqueuer" has incompatible
bare_async("1")  # E: Argument 1 to "__call__" of "AsyncTask"
with_context.delay(1)  # E: Argument 1 to "delay" of "Enqueuer" has incompatible
with_context.delay(JobContext, "x")  # E: Too many arguments for "delay"
task(setle="batched")  # E: Unexpected keyword argument "setle"
task(accumulate=Accumulate(), atomic=True)  # E: No overload variant of "task" matches
bare.using(retries="3")  # E: Argument "retries" to "using"
bare.apply_async((1,), retries=3)  # E: Unexpected keyword argument "retries"
subscribe("a.*", debounce=5)  # E: Unexpected keyword argument "debounce"


@task(takes_context=True)  # E: Argument 1 to "__call__" of "DeclaresWithCont
def forgot_context(path: str) -> None: ...
"""

# The types of Django matter nothing here, and reading them takes most of the time.
CONFIG = """
[mypy]
strict = True
python_version = 3.11
follow_imports = silent
[mypy-django.*]
follow_imports = skip
[mypy-psycopg.*]
follow_imports = skip
"""

SAID = re.compile(r"\w+\.py:(\d+): (error|note): (.*)")


def type_check(folder, cache):
    """Return the errors and notes of mypy about PROGRAM, by line."""
    (folder / "mypy.ini").write_text(CONFIG)
    program = folder / "program.py"
    program.write_text(PROGRAM)
    # mypy.api would change the recursion limit of this process.
    run = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--no-error-summary", "--no-pretty"),
            *(f"--config-file={folder / 'mypy.ini'}", f"--cache-dir={cache}"),
            *("--hide-error-context", "--no-color-output", str(program)),
        ],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "" == run.stderr
    lines: dict[int, str] = {}
    for line in run.stdout.splitlines():
        match = SAID.search(line)
        assert match, line
        number = int(match[1])
        kind = {"error": "E", "note": "N"}[match[2]]
        # Older versions of mypy say builtins.str.
        text = match[3].replace("builtins.", "")
        lines[number] = f"{lines.get(number, '')}{kind}: {text}\n"
    return lines


def test_a_type_checker_knows_arguments_and_results(tmp_path, request):
    """It reports each wrong call, reveals each result, and accepts all other lines."""
    answers = type_check(tmp_path, request.config.cache.mkdir("mypy"))
    failed = []
    for number, line in enumerate(PROGRAM.splitlines(), start=1):
        code, _, comment = line.partition("  # ")
        kind, _, words = comment.partition(": ")
        # mypy may answer for a decorator at the function that it stands above.
        answer = answers.pop(number, "")
        if kind not in ("E", "N"):
            kind, words = "", ""
        if (
            words not in answer
            or not answer.startswith(kind)
            or bool(words) < bool(answer)
        ):
            failed.append(f"{code}: {answer or 'no answer'}")

    assert [] == failed


def test_the_package_says_that_it_is_typed():
    """Else type checkers would ignore all of it."""
    import importlib.resources

    assert importlib.resources.files("django_pgqueue").joinpath("py.typed").is_file()
