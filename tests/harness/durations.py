"""How long files of tests take, as recorded, so that the longest begin first."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

RECORD = Path(__file__).with_name("durations.json")
ROOT = Path(__file__).resolve().parents[2]

# A file that takes less is in nobody's way, wherever it stands.
SECONDS_MIN = 2

# Each slow test of a file that is not recorded.
SLOW_SECONDS = 10


def longest_first(items: list[pytest.Item]) -> None:
    """Sort *items* by how long their files take, with each file's together."""
    recorded = json.loads(RECORD.read_text("utf-8"))
    guessed: dict[str, int] = defaultdict(int)
    for item in items:
        if "slow" in item.keywords:
            guessed[file_of(item.nodeid)] += SLOW_SECONDS
    seconds = {**guessed, **recorded}
    items.sort(key=lambda item: -seconds.get(file_of(item.nodeid), 0))


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


class Recorder:
    """Records a run; of files that it did not run, what was recorded stays."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[file_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        before = json.loads(RECORD.read_text("utf-8"))
        seconds = {**before, **{k: round(v) for k, v in self._seconds.items()}}
        kept = {
            name: seconds[name]
            for name in sorted(seconds)
            if seconds[name] >= SECONDS_MIN and (ROOT / name).exists()
        }
        RECORD.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
