"""Registry: the declared tasks, by name and alias."""

from __future__ import annotations

import asyncio
import functools
import importlib
import sys

import pytest
from asgiref.sync import iscoroutinefunction

from django_pgqueue import DeclarationError, UnknownTask, task
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.registry import declared_names, find_task
from django_pgqueue.tasks.task import AsyncTask
from tests.app import tasks as sample

pytestmark = pytest.mark.usefixtures("declared")


def fresh(name="fresh", *, aliases=()):
    """Declare a task whose function no other one shares."""

    def function():
        pass

    function.__qualname__ = f"{name}_{id(function)}"
    return task(name=name, aliases=aliases)(function)


def test_old_rows_find_a_renamed_task_by_its_alias():
    """The list of names shows the new one alone."""
    declared = fresh("new", aliases=["old", "older"])

    assert (
        declared is find_task("old") is find_task("older") is registry.tasks.get("old")
    )
    assert {"old", "older"}.isdisjoint(declared_names())
    assert "new" in declared_names()


@pytest.mark.parametrize("name", ["os.system", "tests.app.tasks", "", "NOOP", "\x00"])
def test_a_name_that_is_not_declared_is_never_imported(name):
    """The error says what may be missing."""
    with pytest.raises(UnknownTask, match=r"TASK_MODULES.*aliases"):
        find_task(name)
    assert name not in registry.tasks


def test_two_functions_cannot_share_a_name():
    """The error names the name and both functions."""
    fresh("shared")

    with pytest.raises(
        DeclarationError, match=r"called 'shared': \S+shared_\d+ and \S+shared_"
    ):
        fresh("shared")


def test_a_reloaded_module_declares_its_tasks_anew(monkeypatch, tmp_path):
    """As autoreload and notebooks do: the new function is the one that runs."""
    module = tmp_path / "reloaded_tasks.py"
    source = "from django_pgqueue import task\n@task\ndef answer():\n    return {}\n"
    module.write_text(source.format(1))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    first = importlib.import_module("reloaded_tasks")
    monkeypatch.setitem(sys.modules, "reloaded_tasks", first)
    old = first.answer
    module.write_text(source.format(22))
    importlib.invalidate_caches()
    second = importlib.reload(first)

    assert old is not second.answer is find_task("reloaded_tasks.answer")
    assert 22 == find_task("reloaded_tasks.answer")()


# What can be declared ----------------------------------------------------------------


class Shop:
    """Things that are no functions at module level."""

    def method(self):
        """Have a self that no worker could make."""

    @staticmethod
    def static():
        """Stand in a class."""

    @classmethod
    def of_class(cls):
        """Have a class."""


async def coroutine():
    """Be async."""


def generator():
    """Yield."""
    yield 1


def at_module_level():
    """Be what can be declared."""


def nested():
    """Return what no import path leads to."""

    def inner():
        pass

    return inner


@pytest.mark.parametrize(
    "function, message",
    [
        (generator, "generator is a generator"),
        (nested(), "inner must be defined at module level, or declared with name="),
        (lambda: 0, "<lambda> must be defined at module level"),
        (Shop.method, "Shop.method is a method; declare a function at module level"),
        (Shop.of_class, "takes a function defined with def"),
        (functools.partial(at_module_level), "takes a function defined with def"),
        (sample.noop, "def or async def, not <Task"),
        (5, "def or async def, not 5"),
    ],
    ids=lambda value: getattr(value, "__qualname__", repr(value)[:20]),
)
def test_only_a_plain_function_at_module_level_is_a_task(function, message):
    """A worker finds it by its import path."""
    with pytest.raises(DeclarationError, match=message):
        task(function)


def wrapped(function):
    """Decorate an async function as a decorator that knows of async does."""

    @functools.wraps(function)
    async def wrapper(*args, **kwargs):
        return await function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    "function, is_async",
    [(coroutine, True), (wrapped(coroutine), True), (at_module_level, False)],
    ids=["async", "wrapped", "plain"],
)
def test_an_async_function_is_a_task_too(function, is_async):
    """A plain call returns its coroutine, as asgiref and Django know."""
    declared = task(function)

    assert is_async is declared.options.is_async
    assert is_async is isinstance(declared, AsyncTask)
    assert is_async is iscoroutinefunction(declared)
    assert None is (asyncio.run(declared()) if is_async else declared())


def test_a_coroutine_that_nobody_awaits_is_an_error():
    """A decorator written with def hides that its function is async."""

    @functools.wraps(coroutine)
    def hides():
        return coroutine()

    declared = task(name="hides")(hides)

    assert not declared.options.is_async
    with pytest.raises(TypeError, match="hides is a plain function and returned a co"):
        declared()
