"""Mode: let delay() run its job at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.test import override_settings

from django_pgqueue.tasks import inline


@contextmanager
def immediate(*, raise_errors: bool = False) -> Iterator[None]:
    """
    Let delay() run its job at once, in the caller's thread and transaction.

        with immediate():
            result = send_receipt.delay(7)
        assert result.status == "succeeded"

    The job is stored, run and settled as drain() does it, and so are jobs that it
    enqueues, each when the one before it has ended. A job with a time in the future
    stays stored, and so does one that failed and waits for its next attempt. Also a
    decorator of a function or a method; for a whole suite there is PGQUEUE["MODE"].

    Args:
        raise_errors: Whether delay() raises what the job failed with, once that is
            settled; by default the job's row tells.
    """
    with moded("immediate", raise_errors=raise_errors):
        yield


@contextmanager
def moded(mode: str | None, *, raise_errors: bool = False) -> Iterator[None]:
    """Run a block in *mode*; None: that of the settings."""
    said = dict(getattr(settings, "PGQUEUE", {}))
    if mode is not None:
        said["MODE"] = mode
    with override_settings(PGQUEUE=said), inline.raising(raise_errors):
        yield
