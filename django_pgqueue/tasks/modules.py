"""
Modules: those of each app that declare tasks, and those that could not be imported.

One typo in a tasks.py must not take the web server, `migrate` or the doctor down: they
need no task. It is a system check and a finding there; a worker does not start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import MappingProxyType

from django.apps import apps
from django.utils.module_loading import module_has_submodule

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
