"""Declare: options of @task, and those that contradict each other."""

from __future__ import annotations

import pytest

from django_pgqueue import DeclarationError, Retry, task
from django_pgqueue.conf import get_settings
from tests.harness.ids import told

pytestmark = pytest.mark.usefixtures("declared")


def plain(ctx=None):
    """Be a function."""


async def later(ctx=None):
    """Be an async function."""


ALLOWED = [
    (plain, {"atomic": True, "settle": "immediate", "ack_policy": "on_success"}),
    (plain, {"ack_policy": "first"}),
    (plain, {"ack_policy": "reject_on_error", "settle": "batched"}),
    (plain, {"ack_policy": "manual", "takes_context": True, "retries": 3}),
    (later, {"settle": "batched", "timeout": 5, "retries": 3}),
    (later, {"tags": ["a", "b"], "middleware": [lambda ctx, go: go()]}),
]

REFUSED = [
    (later, {"atomic": True}, "atomic=True is for plain functions"),
    (plain, {"atomic": True, "settle": "batched"}, "atomic=True and settle='batched'"),
    (plain, {"atomic": True, "ack_policy": "first"}, "and ack_policy='first' contradi"),
    (plain, {"ack_policy": "manual"}, "ack_policy='manual' needs takes_context=True"),
    (
        plain,
        {"ack_policy": "manual", "takes_context": True, "settle": "batched"},
        "ack_policy='manual' and settle='batched' contradict each other",
    ),
    (plain, {"ack_policy": "first", "settle": "batched"}, "ack_policy='first' and se"),
    (plain, {"ack_policy": "first", "retries": 1}, "'first' and retries contradict"),
    (
        plain,
        {"ack_policy": "first", "archive": False},
        "ack_policy='first' and archive=False contradict each other",
    ),
    (
        plain,
        {"ack_policy": "reject_on_error", "retries": Retry(max_attempts=2)},
        "ack_policy='reject_on_error' and retries contradict each other",
    ),
    (plain, {"ack_policy": "last"}, "ack_policy='last': it must be one of on_success"),
    (plain, {"tags": "mail"}, "tags='mail': it must be a list of texts"),
    (plain, {"tags": ["x" * 64]}, "tags has 'xxx.*a tag is text of 1 to 63"),
    (plain, {"tags": [str(n) for n in range(21)]}, "tags has 21 tags; .* up to 20"),
    (plain, {"queue": "a b"}, "@task: queue='a b'"),
    (plain, {"timeout": 0}, "timeout is 0; it must be longer than zero"),
    (plain, {"timeout": "5000d"}, "the longest is 3653 d"),
    (plain, {"retries": -1}, "retries=-1"),
    (plain, {"aliases": "old"}, r"aliases='old'\): it must be a list"),
    (plain, {"name": ""}, "the name '' must have 1 to 255 characters"),
]


@pytest.mark.parametrize("function, options", ALLOWED, ids=told)
def test_options_that_go_together(function, options):
    """Each is kept as it was said."""
    declared = task(**options)(function)

    for name in ("atomic", "settle", "ack_policy", "takes_context"):
        if name in options:
            assert options[name] == getattr(declared.options, name)


@pytest.mark.parametrize("function, options, message", REFUSED, ids=told)
def test_what_cannot_hold_is_refused_at_import(function, options, message):
    """Not when the first job runs."""
    with pytest.raises(DeclarationError, match=message):
        task(**options)(function)


def test_an_atomic_task_is_settled_by_itself_whatever_the_settings_say(settings):
    """They speak to tasks that say nothing."""
    settings.PGQUEUE = {"DEFAULTS": {"settle": "batched", "ack_policy": "first"}}

    atomic = task(name="atomic", atomic=True)(plain).resolve("q", get_settings())
    other = task(name="other")(later).resolve("q", get_settings())

    assert ("immediate", "on_success") == (atomic.settle, atomic.ack_policy)
    assert ("batched", "first") == (other.settle, other.ack_policy)
