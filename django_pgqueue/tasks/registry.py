"""
Registry: the declared tasks, by name and alias.

A job's row only names its task. The name is looked up here and never imported: a row
that says os.system is a row of an unknown task.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from django_pgqueue.exceptions import DeclarationError, UnknownTask
from django_pgqueue.tasks.options import problem_of_queue

if TYPE_CHECKING:
    from django_pgqueue.tasks.declared import DeclaredTask

# To be asked for a task that may be undeclared; declare() alone adds to it.
tasks: dict[str, DeclaredTask] = {}


def declare(task: DeclaredTask) -> None:
    """
    Make *task* known under its name and its aliases.

    Declaring the same function again, as a reload of its module does, replaces it.

    Raises:
        DeclarationError: Another function has the name already, or its queue is a pull
            queue; nothing is declared.
    """
    problem = problem_of_queue(task.options.queue)
    if problem:
        raise DeclarationError(f"@task {task.name}: {problem}")
    names = (task.name, *task.aliases)
    for name in names:
        other = tasks.get(name)
        if other is not None and _where(other) != _where(task):
            raise DeclarationError(
                f"Two tasks are called {name!r}: {_where(other)} and {_where(task)}. "
                f"Give one of them another name with @task(name=…)."
            )
    for name in names:
        tasks[name] = task


def find_task(name: str) -> DeclaredTask:
    """
    Return the task with this name or alias.

    Raises:
        UnknownTask: No declared task has it.
    """
    try:
        return tasks[name]
    except KeyError:
        raise unknown(name) from None


def unknown(name: str) -> UnknownTask:
    """Return the error of a job whose task nobody has declared."""
    return UnknownTask(
        f"unknown task {name!r}: no module of TASK_MODULES declares it. Move it to "
        f"a tasks.py, or name its module in PGQUEUE['TASK_MODULES']; if it was "
        f"renamed, add @task(aliases=[…])."
    )


def declared_names() -> list[str]:
    """Return the names of all declared tasks, without aliases, in order."""
    return sorted({task.name for task in tasks.values()})


def known_names() -> list[str]:
    """Return all names that a row may have: those of the tasks, and their aliases."""
    return sorted(tasks)


def has_async_tasks() -> bool:
    """Whether any declared task is async."""
    return any(task.options.is_async for task in list(tasks.values()))


def has_accumulating_tasks() -> bool:
    """Whether any declared task takes many calls in one run."""
    return any(task.options.accumulate is not None for task in tasks.values())


def _where(task: DeclaredTask) -> str:
    return f"{task.function.__module__}.{task.function.__qualname__}"


# Modules ------------------------------------------------------------------------------
# Modules: those of each app that declare tasks, and those that could not be imported.
#
# One typo in a tasks.py must not take the web server, `migrate` or the doctor down:
# they need no task. It is a system check and a finding there; a worker does not
# start.


logger = logging.getLogger("django_pgqueue")

# What each module that is there failed with, by its dotted name.
_failed: dict[str, Exception] = {}


def import_modules(names: Iterable[str]) -> None:
    """Import the modules of these *names* of every installed app that has them."""
    for name in names:
        for app in apps.get_app_configs():
            path = f"{app.name}.{name}"
            try:
                import_module(path)
            except Exception as error:
                # Not there is all right; not to be imported is not.
                if app.module is not None and module_has_submodule(app.module, name):
                    _failed[path] = error
                    logger.error(
                        "unimported module=%s: its tasks are unknown here; no worker "
                        "starts until it is fixed",
                        path,
                        exc_info=error,
                    )
            else:
                _failed.pop(path, None)


def failed_modules() -> Mapping[str, Exception]:
    """Return the modules that could not be imported, and with what error."""
    return MappingProxyType(_failed)


def import_problem(path: str, error: Exception) -> str:
    """Return in one sentence that the module *path* failed with *error*."""
    first = next(iter(str(error).splitlines()), "")
    return f"{path} cannot be imported: {type(error).__name__}: {first}"
