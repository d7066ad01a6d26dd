"""Progress: how many tasks of Spark are done."""

from __future__ import annotations

from typing import Any


def tasks(tracker: Any) -> tuple[int, int]:
    """Return how many tasks of the running stages are done, and of how many."""
    found = map(tracker.getStageInfo, tracker.getActiveStageIds())
    stages = [stage for stage in found if stage is not None]
    return (
        sum(stage.numCompletedTasks for stage in stages),
        sum(stage.numTasks for stage in stages),
    )
