"""The comparison of the log's layouts still runs."""

from __future__ import annotations

import sys

import pytest

from tests.benchmarks import log_layouts


@pytest.mark.django_db
def test_each_layout_is_measured(monkeypatch, capsys):
    """In small: it prints a number for each, in a database that is gone afterwards."""
    for name, value in {
        "SINGLE": 16,
        "BULKS": 1,
        "BULK_ROWS": 32,
        "READS": 2,
        "BATCH": 3,
    }.items():
        monkeypatch.setattr(log_layouts, name, value)
    monkeypatch.setattr(sys, "argv", ["log_layouts", "--runs", "2", "--rows", "160"])

    log_layouts.main()

    lines = capsys.readouterr().out.splitlines()
    assert "| | days | hash | plain |" in lines
    table = [line.split(" | ") for line in lines if line.startswith("| ")]
    assert {4} == {len(row) for row in table}
    assert 7 == len(table)
