"""What the doctor asks of queues that may hold so many jobs: is one nearly full?"""

from __future__ import annotations

from collections.abc import Iterator

from django_pgqueue.conf import Settings
from django_pgqueue.operators.findings import START_FOR, Finding, finding, named
from django_pgqueue.operators.human import share
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.limits import Plans, limit
from django_pgqueue.queues.depth import COUNT_SECONDS_MAX, latest

# From here on somebody should look, while there is room still.
NEARLY_FULL = 0.8

# What a queue that is full does.
DOES = {
    "refuse": "refuses jobs",
    "block": "lets those wait who enqueue, and then refuses jobs",
    "signal": "takes jobs all the same",
}


def queue_depth(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Does a queue hold as many jobs as it may, or soon?"""
    limits = settings.depths_max
    if not limits:
        return
    limit(cursor, seconds=COUNT_SECONDS_MAX, plans=Plans.IN_ORDER)
    depths = latest(cursor, limits)
    near = [name for name in limits if depths[name] >= NEARLY_FULL * limits[name]]
    near.sort(key=lambda name: limits[name] / (1 + depths[name]))
    worst = near[0] if near else ""
    found = settings.depth_limit(worst)
    yield finding(
        check="queue_depth",
        wrong=near,
        what="Queues hold nearly as many jobs as they may, or as many: "
        + named([f"{name} {share(depths[name], limits[name])}" for name in near])
        + ("" if found is None else f". {worst}, when full, {DOES[found.on_full]}."),
        right="Every queue with a limit has room.",
        value={name: depths[name] for name in near},
        limit={name: limits[name] for name in near},
        way_out=f"Run more workers for it, such as {START_FOR}{worst}; or raise "
        f"PGQUEUE['QUEUES'][{worst!r}]['depth_max'].",
    )
