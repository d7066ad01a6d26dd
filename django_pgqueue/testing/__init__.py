"""
What users' own test suites need, on their real database.

    from django_pgqueue.testing import assert_enqueued, drain

    class CheckoutTests(TestCase):                 # a plain TestCase is enough
        def test_mail(self):
            checkout(cart)
            assert_enqueued(send_receipt, order_id=cart.order_id)
            drain()
            self.assertEqual(1, len(mail.outbox))

Everything runs in the test's own connection and thread, so that a TestCase rolls it
back. The statements are those of the worker. With pytest there is a fixture besides,
``pgqueue``; see pytest_plugin.py.

The names are loaded when they are first used, since pytest imports the plugin before
Django is set up.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_pgqueue.testing.asserting import assert_enqueued, assert_not_enqueued
    from django_pgqueue.testing.capturing import Captured, capture
    from django_pgqueue.testing.draining import DRAIN_JOBS_MAX, Drained, Ran, drain
    from django_pgqueue.testing.frozen import Clock, freeze
    from django_pgqueue.testing.groups import drain_group
    from django_pgqueue.testing.mode import immediate
    from django_pgqueue.testing.repeating import crash_once, redeliver

# Where each name lives.
_HOMES = {
    "Captured": "capturing",
    "Clock": "frozen",
    "DRAIN_JOBS_MAX": "draining",
    "Drained": "draining",
    "Ran": "draining",
    "assert_enqueued": "asserting",
    "assert_not_enqueued": "asserting",
    "capture": "capturing",
    "crash_once": "repeating",
    "drain": "draining",
    "drain_group": "groups",
    "freeze": "frozen",
    "immediate": "mode",
    "redeliver": "repeating",
}

__all__ = [
    "DRAIN_JOBS_MAX",
    "Captured",
    "Clock",
    "Drained",
    "Ran",
    "assert_enqueued",
    "assert_not_enqueued",
    "capture",
    "crash_once",
    "drain",
    "drain_group",
    "freeze",
    "immediate",
    "redeliver",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
