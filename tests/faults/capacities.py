"""Capacities: how many jobs may be leased at a time or in a time, and other limits."""

from __future__ import annotations

LIMIT = 5

CAPACITIES = {"grouped": 1, "yielding": 1, "limited": LIMIT}

# Of a rate: how many a second, and how many may be ahead of that.
PER_SECOND = 15
BURST = 3

# The queue that has both, the limit and the rate, and their setting.
QUEUE = "metered"
QUEUES = {
    QUEUE: {"concurrency": LIMIT, "rate": f"{PER_SECOND}/s", "burst": BURST},
}

# Of fair lanes: who has most of the jobs, and how many more turns than another's it may
# have while that one waits. Each process goes around by itself, and one that is started
# anew begins with the first lane, which is this one.
LOUD = "c0"
TURNS_AHEAD_MAX = 20

# How often a compensation that is reluctant fails before it works.
RELUCTANT_TIMES = 3
