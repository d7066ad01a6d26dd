"""
Document: what code declares, as one AsyncAPI document.

A topic is a channel, and so is a queue, with the tasks whose jobs it has.

It says nothing of the place where it is made: no host, no time, no version of ours. The
same code makes the same text.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from typing import Any

from django_pgqueue.bounds import QUEUE_DEFAULT
from django_pgqueue.contract.schemas import (
    Read,
    arguments_of,
    component,
    payload_of,
    to_schema,
)
from django_pgqueue.exceptions import DeclarationError
from django_pgqueue.log.names import KEY_CHARACTERS_MAX, topic_of
from django_pgqueue.schedules import declare as schedules
from django_pgqueue.tasks import registry as tasks
from django_pgqueue.tasks.declared import DeclaredTask
from django_pgqueue.tasks.parameters import FIRST
from django_pgqueue.tasks.registry import failed_modules, import_problem
from django_pgqueue.topics import consume, subscribe
from django_pgqueue.topics import registry as topics
from django_pgqueue.topics.registry import Declared

ASYNCAPI = "3.0.0"
JSON = "application/json"
SERVER = "postgresql"
OURS = "django_pgqueue."

# What says more than AsyncAPI does.
MORE = "x-pgqueue"

TOPIC, QUEUE = "topic", "queue"

# Stands for arguments that have no names.
MANY = "*"


def project_document() -> dict[str, Any]:
    """
    Return the document of this project.

    Raises:
        DeclarationError: A module of tasks cannot be imported, or a type hint cannot
            be read.
        MissingExtra: pydantic is not installed.
    """
    from django.conf import settings

    for path, error in failed_modules().items():
        raise DeclarationError(
            f"{import_problem(path, error)}: what it declares would be missing."
        )
    urls = getattr(settings, "ROOT_URLCONF", None) or "django_pgqueue"
    return document(urls.partition(".")[0])


def document(title: str) -> dict[str, Any]:
    """
    Return the document of all topics and tasks that code declares.

    Tasks of this package are left out, and those that only get messages, which are in
    their topics.

    Args:
        title: Of the project.

    Raises:
        MissingExtra: pydantic is not installed.
        DeclarationError: A type hint cannot be read.
    """
    schemas: dict[str, Any] = {}
    channels: dict[str, Any] = {}
    names = _message_names()
    for name in sorted(names):
        channels[f"{TOPIC}.{name}"] = _topic(name, names[name], schemas)
    for task in _tasks():
        queue = task.options.queue or QUEUE_DEFAULT
        channel = channels.setdefault(f"{QUEUE}.{queue}", _queue(queue))
        channel["messages"][task.name] = _task(task, schemas)
    made = {
        "asyncapi": ASYNCAPI,
        "defaultContentType": JSON,
        "servers": {
            SERVER: {
                "host": "{host}",
                "protocol": "postgresql",
                "description": "The database that PGQUEUE['DATABASE'] names.",
                "variables": {"host": {"description": "Of PostgreSQL."}},
            }
        },
        "channels": channels,
        "components": {"schemas": schemas},
    }
    # It changes with what the document says, and with nothing else.
    version = hashlib.sha256(text_of(made).encode()).hexdigest()[:12]
    return {**made, "info": {"title": title, "version": version}}


def text_of(made: dict[str, Any]) -> str:
    """Return a document as JSON in an order of its own, to be committed."""
    return json.dumps(made, indent=2, sort_keys=True, ensure_ascii=False)


def _message_names() -> dict[str, set[str]]:
    """Return each topic that code knows, with the names of messages that it knows."""
    found: dict[str, set[str]] = {each.name: set() for each in topics.declared()}
    for reader in consume.declared():
        found.setdefault(reader.topic, set())
    for pattern in (each.pattern for each in subscribe.declared()):
        if pattern.topic is not None:
            names = found.setdefault(pattern.topic, set())
            if "*" not in pattern.text:
                names.add(pattern.text)
    for schedule in schedules.declared():
        if schedule.message_name is not None:
            name = schedule.message_name
            found.setdefault(topic_of(name), set()).add(name)
    return found


def _tasks() -> list[DeclaredTask]:
    readers = {each.task.name for each in consume.declared()}
    declared = map(tasks.find_task, tasks.declared_names())
    return [
        task
        for task in declared
        if not (task.name.startswith(OURS) or task.receives or task.name in readers)
    ]


def _topic(name: str, names: set[str], schemas: dict[str, Any]) -> dict[str, Any]:
    declared = topics.find(name)
    said = declared or Declared(name)
    payload = _kept(payload_of(said), f"{TOPIC}.{name}", schemas)
    retain = said.retain
    # Whatever further words its name has, a message is of the topic's schema.
    return {
        "address": name,
        "messages": {
            each: {
                "name": each,
                "contentType": JSON,
                "payload": payload,
                "headers": {"type": "object"},
                f"{MORE}-key": {"type": "string", "maxLength": KEY_CHARACTERS_MAX},
            }
            for each in sorted({name, *names})
        },
        MORE: {
            "kind": TOPIC,
            "declared": declared is not None,
            "partitions": said.partitions,
            "retain_seconds": None if retain is None else int(retain.total_seconds()),
        },
    }


def _queue(name: str) -> dict[str, Any]:
    return {"address": name, "messages": {}, MORE: {"kind": QUEUE}}


def _task(task: DeclaredTask, schemas: dict[str, Any]) -> dict[str, Any]:
    made = {
        "name": task.name,
        "contentType": JSON,
        "payload": _kept(arguments_of(task), f"task.{task.name}", schemas),
        "headers": {"type": "object"},
        MORE: {"aliases": sorted(task.aliases), "by_place": _by_place(task)},
    }
    about = (inspect.getdoc(task.function) or "").strip().partition("\n")[0]
    return {**made, "summary": about} if about else made


def _by_place(task: DeclaredTask) -> list[str]:
    """Return the parameters that a job may have as args; "*": and further ones."""
    if task.options.accumulate is not None:
        return [MANY]
    kinds = {parameter.name: parameter.kind for parameter in task.parameters.own}
    names = [name for name, kind in kinds.items() if kind in FIRST]
    takes_more = inspect.Parameter.VAR_POSITIONAL in kinds.values()
    return [*names, MANY] if takes_more else names


def _kept(read: Read, name: str, schemas: dict[str, Any]) -> dict[str, Any]:
    """Put a schema with its parts among the components; return what leads to it."""
    schemas.update(read.parts)
    if not read.schema:
        return {}
    schemas[component(name)] = read.schema
    return {"$ref": to_schema(component(name))}
