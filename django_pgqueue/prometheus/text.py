"""Text: families of numbers as an answer over HTTP, in the format that is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django_pgqueue.extras import extra


class _Families:
    """Stands for a registry: numbers are collected anew for each answer."""

    def __init__(self, families: Iterable[Any]) -> None:
        self._families = families

    def collect(self) -> Iterable[Any]:
        """Return the families."""
        return self._families


def answer(families: Iterable[Any], accept: str) -> tuple[str, bytes]:
    """
    Return content type and body.

    Args:
        families: As families.py makes them.
        accept: The header of the request, which chooses OpenMetrics or plain text.

    Raises:
        MissingExtra: prometheus-client is not installed.
    """
    encode, kind = extra("prometheus_client.exposition").choose_encoder(accept)
    return kind, encode(_Families(families))
