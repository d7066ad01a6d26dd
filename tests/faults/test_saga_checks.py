"""The saga checks: each finds what it is there for, in histories made by hand."""

from __future__ import annotations

import pytest

from tests.faults import saga_checks
from tests.faults.evidence import Evidence, SagaRow
from tests.faults.history import Change, Row
from tests.faults.verdict import Verdict

UNDO = {step: task for task, step in saga_checks.UNDOES.items()}
JOBS = {task: n for n, task in enumerate((*saga_checks.STEPS, *saga_checks.UNDOES), 1)}


class Story:
    """The history of one saga, told job by job, as the package would have it."""

    def __init__(self, how: str = "") -> None:
        self.how = how
        self.changes: list[Change] = []
        self.effects: list[tuple[int, int, str, str]] = []
        self.states: dict[str, str] = {}
        self.state = "running"
        self.active = 0
        self.places: dict[int, list[tuple[str, str | None]]] = {}

    def write(self, task: str, place: str, operation: str, row: Row) -> None:
        """Add a change of one row."""
        self.changes.append(
            Change(
                seq=len(self.changes),
                place=place,
                operation=operation,
                job=JOBS[task],
                task=task,
                how=self.how or None,
                old=row if operation == "DELETE" else None,
                new=None if operation == "DELETE" else row,
                workflow=1,
                saga="s",
            )
        )

    def store(self, *tasks: str) -> Story:
        """Their jobs come into the queue."""
        for task in tasks:
            self.write(task, "queue", "INSERT", Row())
            self.places[JOBS[task]] = [("queue", None)]
            self.states[task] = "started"
        return self

    def end(self, task: str, state: str = "succeeded", *, attempt: int = 1) -> Story:
        """One goes, with a row in the archive or, if it gave up, a dead letter."""
        self.write(task, "queue", "DELETE", Row())
        row = Row(state=state, attempt=attempt, deliveries=attempt)
        place = "archive" if state in ("succeeded", "cancelled") else "dead"
        self.write(task, place, "INSERT", row)
        self.places[JOBS[task]] = [(place, state)]
        self.states[task] = state if place == "archive" else "dead"
        return self

    def effect(self, task: str, *, delivery: int = 1) -> Story:
        """What it was for is done."""
        step = saga_checks.UNDOES.get(task)
        key = f"s/{task}" if step is None else f"s/{step} undone"
        self.effects.append((JOBS[task], delivery, key, "read committed"))
        return self

    def do(self, *tasks: str) -> Story:
        """One after the other runs and succeeds."""
        for task in tasks:
            self.store(task).effect(task).end(task)
        return self

    def set_aside(self, task: str) -> Story:
        """A dead letter goes to the archive."""
        self.write(task, "dead", "DELETE", Row())
        self.write(task, "archive", "INSERT", Row(state="cancelled", attempt=1))
        self.places[JOBS[task]] = [("archive", "cancelled")]
        return self

    def gives_up(self, step: str) -> Story:
        """Do what comes before a step, and let that one give up."""
        before = saga_checks.STEPS[: saga_checks.STEPS.index(step)]
        return self.do(*before).store(step).end(step, "exhausted").set_aside(step)

    def found(self, check, state: str, **counts: int) -> list[str]:
        """Return what a check finds where the saga is in *state* in the end."""
        saga = SagaRow(
            id=1,
            key="s",
            state=state,
            active=self.active,
            counts={
                "succeeded": sum(
                    self.states.get(step) == "succeeded" for step in saga_checks.STEPS
                ),
                "dead": sum(
                    self.states.get(step) == "dead" for step in saga_checks.STEPS
                ),
                **counts,
            },
            states=self.states,
        )
        evidence = Evidence(
            changes=self.changes,
            effects=self.effects,
            places=self.places,
            sagas=[saga],
        )
        return list(check(evidence, Verdict()))


def succeeded() -> Story:
    """Return a saga that has done all."""
    return Story().do(*saga_checks.STEPS)


def compensated() -> Story:
    """Return a saga that gave up at its third step."""
    return Story("pack").gives_up("pack").do("refund", "release")


OF_ONE = [
    check
    for check in saga_checks.ALWAYS
    if check is not saga_checks.sagas_went_both_ways
]


@pytest.mark.parametrize("check", OF_ONE)
def test_a_saga_that_has_succeeded_is_all_right(check):
    """All steps are done, and nothing is undone."""
    assert [] == succeeded().found(check, "succeeded")


@pytest.mark.parametrize("state", ["running", "compensating", "failed", "cancelled"])
def test_a_saga_that_has_not_ended_is_found(state):
    """And one that is told to have ended while a step is active."""
    assert succeeded().found(saga_checks.sagas_end, state)
    story = succeeded()
    story.active = 1
    assert story.found(saga_checks.sagas_end, "succeeded")


@pytest.mark.parametrize(
    "told, state",
    [
        (lambda: Story().do("reserve", "charge", "pack"), "succeeded"),
        (lambda: succeeded().do("unpack"), "succeeded"),
        (lambda: Story("pack").gives_up("pack").do("refund"), "compensated"),
        (lambda: Story("pack").gives_up("pack"), "compensated"),
        (lambda: succeeded().do("unpack", "refund", "release"), "compensated"),
        (
            lambda: Story("charge").gives_up("charge").do("refund", "release"),
            "compensated",
        ),
    ],
    ids=[
        "a step was left out",
        "both",
        "half undone",
        "neither",
        "undone though all is done",
        "undone what was not done",
    ],
)
def test_what_is_neither_done_nor_undone_or_both_is_found(told, state):
    """Whatever its row says."""
    assert told().found(saga_checks.sagas_are_whole, state)


def test_another_order_is_found():
    """Of what is undone, and of what is done."""
    story = Story("pack").gives_up("pack").do("release", "refund")
    assert 1 == len(story.found(saga_checks.sagas_keep_order, "compensated"))

    story = Story().do("charge", "reserve", "pack", "ship")
    assert 1 == len(story.found(saga_checks.sagas_keep_order, "succeeded"))


def test_a_step_that_has_succeeded_without_its_row_is_found():
    """Its outcome is written by the delivery that has written the row."""
    check = saga_checks.effects_are_those_of_sagas
    story = Story().store("reserve").end("reserve")
    assert 1 == len(story.found(check, "running"))

    story = Story().store("reserve").effect("reserve").end("reserve", attempt=2)
    assert 1 == len(story.found(check, "running"))


def test_rows_of_the_package_that_say_otherwise_are_found():
    """Of a step, and the counts of a workflow."""
    check = saga_checks.sagas_say_what_was
    assert 1 == len(compensated().found(check, "compensated", dead=0))
    assert 1 == len(compensated().found(check, "compensated", succeeded=3))
    story = compensated()
    story.states["release"] = "started"
    assert 1 == len(story.found(check, "compensated"))


def test_a_run_in_which_all_go_one_way_is_found():
    """Nothing was tried of the other way."""
    check = saga_checks.sagas_went_both_ways
    assert succeeded().found(check, "succeeded")
    assert compensated().found(check, "compensated")
