"""
How long files of tests take, as recorded, so that the longest begin first.

The slow tests of a file are recorded by themselves, since another run has them.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Container
from pathlib import Path

import pytest

RECORD = Path(__file__).with_name("durations.json")
ROOT = Path(__file__).resolve().parents[2]

# A file that takes less is in nobody's way, wherever it stands.
SECONDS_MIN = 2

# Each slow test of a file whose slow ones are not recorded.
SLOW_SECONDS = 10

SLOW = " slow"


def longest_first(items: list[pytest.Item]) -> None:
    """Sort *items* by how long their files take, with each file's together."""
    recorded = json.loads(RECORD.read_text("utf-8"))
    guessed: Counter[str] = Counter()
    for item in items:
        part = part_of(item.nodeid, item.keywords)
        guessed[part] += SLOW_SECONDS * part.endswith(SLOW)
    seconds: Counter[str] = Counter()
    for part, guess in guessed.items():
        seconds[part.removesuffix(SLOW)] += recorded.get(part, guess)
    items.sort(key=lambda item: -seconds[file_of(item.nodeid)])


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def part_of(nodeid: str, keywords: Container[str]) -> str:
    return file_of(nodeid) + (SLOW if "slow" in keywords else "")


class Recorder:
    """Records a run; of files that it did not run, what was recorded stays."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[part_of(report.nodeid, report.keywords)] += report.duration

    def pytest_sessionfinish(self) -> None:
        before = json.loads(RECORD.read_text("utf-8"))
        seconds = {**before, **{k: round(v) for k, v in self._seconds.items()}}
        kept = {
            name: seconds[name]
            for name in sorted(seconds)
            if seconds[name] >= SECONDS_MIN
            and (ROOT / name.removesuffix(SLOW)).exists()
        }
        RECORD.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
