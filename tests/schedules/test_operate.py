"""Operate: what people do with schedules, by the functions that they share."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from django_pgqueue import signals
from django_pgqueue.admin.schedules import shown_state
from django_pgqueue.models import Schedule
from django_pgqueue.schedules import operate
from django_pgqueue.schedules.definition import define
from django_pgqueue.schedules.timetables import STATES, state_of
from tests.harness.factories import make_schedule
from tests.schedules.conftest import read

pytestmark = pytest.mark.django_db

NAME = "nightly"


def definition(**said: Any) -> Any:
    """Return a checked schedule."""
    holds = {"task": "tests.app.tasks.noop", "expression": "@daily", "tz": "UTC"}
    return define(name=NAME, **{**holds, **said})


def test_a_change_of_what_has_changed_meanwhile_does_nothing() -> None:
    """So does one of a schedule that is gone."""
    row = make_schedule()

    assert operate.change(definition(), revision=row.revision + 1) is None
    assert row.expression == read(NAME).expression
    assert operate.change(definition(), revision=row.revision) == ["expression", "tz"]
    Schedule.objects.all().delete()
    assert operate.change(definition(), revision=row.revision + 1) is None


def test_another_timetable_begins_now() -> None:
    """Its ticks of yesterday are not made up for; with the same one they go on."""
    row = make_schedule()

    operate.change(
        definition(expression=row.expression, tz=row.tz, queue="x"), revision=0
    )
    assert row.ticks_from == read(NAME).ticks_from
    operate.change(definition(queue="x"), revision=1)
    assert row.ticks_from < read(NAME).ticks_from


def test_a_run_by_hand_is_told_after_the_commit(
    django_capture_on_commit_callbacks: Any,
) -> None:
    """Of the job, and of the tick, with its moment in UTC; also without USE_TZ."""
    make_schedule()
    told: list[Any] = []

    def note(**fields: Any) -> None:
        told.append(fields)

    for signal in (signals.job_enqueued, signals.schedule_ticked):
        signal.connect(note)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            issued = operate.run_now(NAME, by="ada")
            assert told == []
    finally:
        for signal in (signals.job_enqueued, signals.schedule_ticked):
            signal.disconnect(note)
    assert issued is not None
    assert [issued.job_id, issued.job_id] == [each["job_id"] for each in told]
    assert "nightly" == told[1]["schedule"]


def test_the_states_of_lists_and_commands_are_the_same() -> None:
    """The admin derives them in SQL, the commands in Python."""
    for number in range(2**4):
        withdrawn, paused, faulty, late = (number >> bit & 1 for bit in range(4))
        now = timezone.now()
        make_schedule(
            name=str(number),
            withdrawn_at=now if withdrawn else None,
            paused_at=now if paused else None,
            error="x" if faulty else None,
            next_tick=now.replace(year=2020 if late else 2120),
        )
    rows = Schedule.objects.annotate(shown_state=shown_state())

    found = {row.name: row.shown_state for row in rows}
    assert found == {name: state_of(read(name), timezone.now()) for name in found}
    assert set(STATES) == set(found.values())
