"""A mail backend that refuses every mail for good."""

from __future__ import annotations
