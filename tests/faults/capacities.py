"""Capacities: how many jobs of a customer may be leased at a time, by their task."""

from __future__ import annotations

LIMIT = 5

CAPACITIES = {"grouped": 1, "limited": LIMIT}
