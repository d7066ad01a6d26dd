"""Ids: parameters of tests in words that are the same in each process."""

from __future__ import annotations

import re

from django_pgqueue.exceptions import shown

ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def told(value: object) -> str:
    """Return *value* as text, without addresses of memory."""
    return ADDRESS.sub("", shown(value))
