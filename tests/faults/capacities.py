"""Capacities: how many jobs of a customer may be leased at a time, or in a time."""

from __future__ import annotations

LIMIT = 5

CAPACITIES = {"grouped": 1, "yielding": 1, "limited": LIMIT}

# Of a rate: how many a second, and how many may be ahead of that.
PER_SECOND = 15
BURST = 3
