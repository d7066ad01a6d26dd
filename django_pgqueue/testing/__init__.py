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

The names are imported when they are first used: pytest imports the plugin before
Django is set up.
"""

from importlib import import_module
from typing import Any

# The module of each name. Type checkers read __init__.pyi instead.
_MODULES = {
    "DRAIN_JOBS_MAX": "draining",
    "Captured": "capturing",
    "Clock": "frozen",
    "Drained": "draining",
    "Ran": "draining",
    "assert_enqueued": "asserting",
    "assert_not_enqueued": "asserting",
    "capture": "capturing",
    "crash_once": "repeating",
    "drain": "draining",
    "drain_group": "groups",
    "freeze": "frozen",
    "immediate": "draining",
    "redeliver": "repeating",
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
