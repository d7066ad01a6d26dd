"""
Redact: the arguments of a job, without the values that nobody should read.

PGQUEUE['REDACT'] lists regular expressions for names: keys of an object at any depth,
and parameters of the job's task. redaction/ replaces what stands under such a name;
what the parameters are called is known here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django_pgqueue.conf import Settings
from django_pgqueue.redaction.names import Names
from django_pgqueue.redaction.values import Walk
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.registry import known_names


def redact_job(
    args: Any, kwargs: Any, task_name: str, settings: Settings
) -> tuple[Any, Any]:
    """
    Return the arguments of a job with its secrets replaced.

    Positional arguments are known by the parameters of the declared task. Those of a
    task that is not declared here have no names, so only keys inside of them count.

    Args:
        args: The stored args: a list, or whatever SQL has put there.
        kwargs: The stored kwargs: an object, or whatever SQL has put there.
        task_name: The task that the job names.
        settings: Where REDACT stands.
    """
    walk = Walk(settings.redact)
    if not walk.patterns or not isinstance(args, list):
        return walk.value(args, 0), walk.value(kwargs, 0)
    names, rest = _parameters(task_name)

    def is_secret(place: int) -> bool:
        return walk.hides(names[place] if place < len(names) else rest)

    shown = walk.items(args, 0, is_secret)
    return shown, walk.value(kwargs, 0)


def secret_places(task_name: str, patterns: Iterable[str]) -> tuple[bool, ...]:
    """
    Return whether each positional argument of a task is secret.

    The last item holds for all further arguments. Empty: none is, or the task is not
    declared here.
    """
    names = Names(patterns)
    parameters, rest = _parameters(task_name)
    places = (*map(names.hides, parameters), names.hides(rest))
    return places if any(places) else ()


def all_secret_places(patterns: Iterable[str]) -> dict[str, tuple[bool, ...]]:
    """Return secret_places() of each task declared here that has any, by each name."""
    hidden = tuple(patterns)
    places = {name: secret_places(name, hidden) for name in known_names()}
    return {name: secret for name, secret in places.items() if secret}


def _parameters(task_name: str) -> tuple[list[str], str | None]:
    """Return the names of positional parameters, and that of what exceeds them."""
    task = registry.tasks.get(task_name)
    if task is None:
        return [], None
    parameters = task.parameters.own
    names = [
        parameter.name
        for parameter in parameters
        if parameter.kind
        in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    rest = [p.name for p in parameters if p.kind == p.VAR_POSITIONAL]
    return names, rest[0] if rest else None
