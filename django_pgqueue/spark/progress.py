"""
Progress: how many tasks of Spark are done, and how many rows were read.

Spark counts the rows of each node of a plan by itself; those of the leaves are what was
read. It hears of them when a task ends, and every ten seconds from tasks that run.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

ROWS = "number of output rows"

# Spark tells what happened in order, a moment later.
TOLD_WITHIN_MILLISECONDS = 10_000

# The plans that one look goes through: of a job with hundreds, the latest.
PLANS_MAX = 50


class Progress:
    """What one run has done in its session, since this was made."""

    def __init__(self, session: Any) -> None:
        self._context = session.sparkContext
        self._store = session._jsparkSession.sharedState().statusStore()
        self._tracker = self._context.statusTracker()
        # Rows of plans that have ended; they are not looked at again.
        self._ended: dict[int, int] = {}
        with suppress(Exception):  # What others do in the session may go on and on.
            self._hear_all()
        self._first = self._next_execution()

    def rows_read(self, *, again: bool = False) -> int:
        """
        Return how many rows the leaves of all plans have had so far.

        Args:
            again: Ask once more for plans that have ended, too: Spark sums up a plan's
                rows a moment after it says that the plan has ended.
        """
        executions = self._store.executionsList()
        rows = dict(self._ended)
        count = executions.size()
        for place in range(max(0, count - PLANS_MAX), count):
            execution = executions.apply(place)
            number = execution.executionId()
            if number < self._first or (number in self._ended and not again):
                continue
            rows[number] = max(self._leaves(number), rows.get(number, 0))
            if execution.completionTime().isDefined():
                self._ended[number] = rows[number]
        return sum(rows.values())

    def rows_read_at_last(self) -> int:
        """Return the same once Spark has told of all that happened."""
        self._hear_all()
        return self.rows_read(again=True)

    def tasks(self) -> tuple[int, int]:
        """Return how many tasks of the running stages are done, and of how many."""
        done = total = 0
        for stage in self._tracker.getActiveStageIds():
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                done += info.numCompletedTasks
                total += info.numTasks
        return done, total

    def _hear_all(self) -> None:
        """Wait until Spark has told of all that has happened."""
        bus = self._context._jsc.sc().listenerBus()
        bus.waitUntilEmpty(TOLD_WITHIN_MILLISECONDS)

    def _next_execution(self) -> int:
        executions = self._store.executionsList()
        count = executions.size()
        return 1 + max(
            (
                executions.apply(place).executionId()
                for place in range(max(0, count - PLANS_MAX), count)
            ),
            default=-1,
        )

    def _leaves(self, execution: int) -> int:
        graph = self._store.planGraph(execution)
        values = self._store.executionMetrics(execution)
        edges, nodes = graph.edges(), graph.allNodes()
        # An edge leads from the node that gives rows to the one that takes them.
        takers = {edges.apply(place).toId() for place in range(edges.size())}
        rows = 0
        for place in range(nodes.size()):
            node = nodes.apply(place)
            if node.id() in takers or not hasattr(node, "metrics"):
                continue
            metrics = node.metrics()
            for each in range(metrics.size()):
                metric = metrics.apply(each)
                if metric.name() == ROWS and values.contains(metric.accumulatorId()):
                    rows += _number(values.apply(metric.accumulatorId()))
        return rows


def _number(text: str) -> int:
    digits = text.replace(",", "")
    return int(digits) if digits.isdigit() else 0
