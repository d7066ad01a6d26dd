"""What statements read, as EXPLAIN says."""

from __future__ import annotations

from typing import Any

EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "


class Explaining:
    """
    A cursor that runs a statement under EXPLAIN ANALYZE, and gives no rows.

    Attributes:
        buffers: Pages that the statements so far have read.
        rows: What the last one would have given.
    """

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self.buffers = 0
        self.rows = 0

    def execute(self, statement: str, params: Any = None) -> None:
        """Run and explain it; what it writes is written."""
        self._cursor.execute(EXPLAIN + statement, params)
        plan = self._cursor.fetchone()[0][0]["Plan"]
        self.buffers += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        self.rows = int(plan["Actual Rows"])

    def fetchall(self) -> list[Any]:
        """Return no rows."""
        return []
