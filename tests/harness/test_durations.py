"""In which order files of tests begin."""

from __future__ import annotations

import json
from types import SimpleNamespace

from tests.harness import durations

HERE, THERE = "tests/harness/test_durations.py", "tests/harness/test_seeds.py"


def one(file, *marks, seconds=0.0):
    """Return what is asked of a test, or of what is reported of it."""
    return SimpleNamespace(nodeid=f"{file}::x", keywords=marks, duration=seconds)


def test_files_begin_by_what_their_tests_of_this_run_took(tmp_path, monkeypatch):
    """Those that are slow count where they run, and others where those do."""
    record = tmp_path / "record.json"
    record.write_text("{}")
    monkeypatch.setattr(durations, "RECORD", record)
    for reports in (
        [one(HERE, "slow", seconds=90.0), one(THERE, "slow", seconds=20.0)],
        [one(HERE, seconds=3.0), one(THERE, seconds=5.0)],
    ):
        recorder = durations.Recorder()
        for report in reports:
            recorder.pytest_runtest_logreport(report)
        recorder.pytest_sessionfinish()

    quick, slow = [one(HERE), one(THERE)], [one(THERE, "slow"), one(HERE, "slow")]
    durations.longest_first(quick)
    durations.longest_first(slow)

    assert {HERE: 3, f"{HERE} slow": 90, THERE: 5, f"{THERE} slow": 20} == json.loads(
        record.read_text()
    )
    assert [f"{THERE}::x", f"{HERE}::x"] == [item.nodeid for item in quick]
    assert [f"{HERE}::x", f"{THERE}::x"] == [item.nodeid for item in slow]
