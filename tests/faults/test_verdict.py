"""The verdict, on histories written by hand: each violation is found, and only it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.evidence import (
    Evidence,
    Harm,
    Operation,
    Run,
    runs_of,
)
from tests.faults.history import Change, Row
from tests.faults.verdict import Verdict, judge

LEASE = 5.0


class Story:
    """The history of one job, told step by step; time passes a second at a step."""

    def __init__(self, job: int = 1) -> None:
        self.job = job
        self.now = 100.0
        self.changes: list[Change] = []
        self.runs: dict[tuple[int, int], Run] = {}
        self.told: list[tuple[str, int, int, str]] = []
        self.harms: list[Harm] = []
        self.last_seen: dict[int, float] = {}
        self.places: list[tuple[str, str | None]] = []
        self.row = Row(visible_at=self.now)
        self._write("queue", "INSERT", None, self.row)

    def _write(
        self, place: str, operation: str, old: Row | None, new: Row | None
    ) -> None:
        self.changes.append(
            Change(
                seq=len(self.changes),
                at=self.now,
                transaction=str(int(self.now)),
                place=place,
                operation=operation,
                job=self.job,
                key="op.0",
                old=old,
                new=new,
            )
        )

    def passes(self, seconds: float = 1.0) -> Story:
        self.now += seconds
        return self

    def update(self, **changes: Any) -> Story:
        """Change the row in the queue."""
        self.now += 1
        old = self.row
        told = {name: getattr(old, name) for name in Row.__slots__} | changes
        self.row = Row(**told)
        self._write("queue", "UPDATE", old, self.row)
        return self

    def claim(self, worker: str = "a", **changes: Any) -> Story:
        """Claim it as the package does, except for what is told."""
        old, at = self.row, self.now + 1
        is_lapse = old.leased_by is not None
        return self.update(
            **{
                "leased_by": worker,
                "leased_at": at,
                "visible_at": at + LEASE,
                "deliveries": old.deliveries + 1,
                "attempt": max(old.attempt, 1) if is_lapse else old.attempt + 1,
                "crashes": old.crashes + is_lapse,
                **changes,
            }
        )

    def start(self, pid: int = 1) -> Story:
        self.passes(0.1)
        lease = (self.job, self.row.deliveries)
        self.runs[lease] = Run(*lease, pid, self.now)
        self.last_seen[pid] = self.now
        return self

    def end(self, delivery: int | None = None) -> Story:
        self.passes(0.1)
        run = self.runs[self.job, delivery or self.row.deliveries]
        run.ended_at = self.last_seen[run.pid] = self.now
        return self

    def fail(self) -> Story:
        self.passes(0.1)
        run = self.runs[self.job, self.row.deliveries]
        run.failed_at, run.error = self.now, "builtins.ValueError"
        self.last_seen[run.pid] = self.now
        return self

    def final(self, place: str = "archive", state: str = "succeeded") -> Story:
        """Move it out of the queue, in one transaction."""
        self.passes()
        told = {name: getattr(self.row, name) for name in Row.__slots__}
        new = Row(**{**told, "state": state})
        self._write("queue", "DELETE", self.row, None)
        self._write(place, "INSERT", None, new)
        self.places.append((place, state))
        return self

    def ack(self) -> Story:
        self.final()
        self.told.append(("told", self.job, self.row.deliveries, "ack"))
        return self

    def give_back(self, **changes: Any) -> Story:
        return self.update(
            **{"leased_by": None, "leased_at": None, "visible_at": self.now, **changes}
        )

    def rescue(self) -> Story:
        """As a crash: the attempt is given back."""
        row = self.row
        return self.give_back(attempt=row.attempt - 1, crashes=row.crashes + 1)

    def harm(self, kind: str, pid: int | None, seconds: float = 0.0) -> Story:
        pids = None if pid is None else frozenset({pid})
        self.harms.append(Harm(kind, "", pids, self.now, self.now + seconds))
        return self


def verdict_on(*stories: Story, **changes: Any) -> Verdict:
    """Judge stories whose one enqueue was acknowledged, except for what is told."""
    told: dict[str, Any] = {
        "operations": [Operation("op", 1, "ack", 99.0)],
        "committed_operations": frozenset({"op"}),
        "runs": {key: run for story in stories for key, run in story.runs.items()},
        "told": [line for story in stories for line in story.told],
        "last_seen": {
            {1: "a", 2: "b"}.get(pid, ""): at
            for story in stories
            for pid, at in story.last_seen.items()
        },
        "pids": {"a": 1, "b": 2},
        "harms": [harm for story in stories for harm in story.harms],
        "changes": [change for story in stories for change in story.changes],
        "places": {s.job: s.places for s in stories if s.places},
        "drained_at": 500.0,
        **changes,
    }
    return judge(Evidence(**told), ["crashed", "stale", "lapsed"])


def violations(verdict: Verdict) -> set[str]:
    return {kind for kind, texts in verdict.violations.items() if texts}


def test_a_job_that_runs_once_violates_nothing_but_no_fault_has_bitten():
    """Without a bite a run does not count, however right it is."""
    verdict = verdict_on(Story().claim().start().end().ack())

    assert set() == violations(verdict)
    assert not verdict.bit
    assert not verdict.is_valid


def test_a_repeat_after_a_kill_is_explained_and_bites():
    """The crash is counted, the process was killed, and the run is valid."""
    story = Story().claim().start(pid=1).harm("kill_process", 1).rescue()
    story.claim("b").start(pid=2).end().ack()

    verdict = verdict_on(story)

    assert verdict.is_valid
    counts = verdict.counts
    assert (1, 1, 2) == (counts["duplicated"], counts["explained"], counts["executed"])


def once() -> Story:
    """Return the story of a job that runs once."""
    return Story().claim().start().end().ack()


def ran_twice(story: Story) -> Story:
    """Let another worker claim the job, run it, and ack."""
    return story.claim("b").start(pid=2).end().ack()


def placed(story: Story, place: str, state: str | None) -> Story:
    """Add a row of the job at the end."""
    story.places.append((place, state))
    return story


def paused() -> Story:
    """Return the story of a job whose worker is stopped for longer than its lease."""
    return Story().claim("a").start(pid=1).harm("pause_process", 1, seconds=8)


def claims_to_ack_twice() -> Story:
    """Return the story of a worker that says that it settled what another one did."""
    story = ran_twice(paused().passes(6))
    story.told.append(("told", 1, 1, "ack"))
    return story


def runs_unclaimed() -> Story:
    """Return the story of a job that also runs without a lease."""
    story = once()
    story.runs[1, 7] = Run(1, 7, pid=1, started_at=101.0)
    return story


FAILED = Operation("op", 1, "fail", 99.0)
NONE_COMMITTED: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    "expected, story, changes",
    [
        ({"lost", "leftovers"}, Story().claim(), {}),
        # Its transaction rolled back, or there was none.
        (
            {"unexpected"},
            once(),
            {"operations": [FAILED], "committed_operations": NONE_COMMITTED},
        ),
        (
            {"unexpected"},
            once(),
            {"operations": [], "committed_operations": NONE_COMMITTED},
        ),
        # What runs, runs under a lease of its own.
        ({"unexpected"}, runs_unclaimed(), {}),
        # A bulk is stored as a whole, or not at all.
        ({"half"}, once(), {"operations": [Operation("op", 50, "unknown", 99.0)]}),
        ({"unfinished"}, placed(Story(), "queue", None), {}),
        ({"unfinished"}, once(), {"drained_at": None}),
        # Finished and failed at once.
        ({"illegal"}, placed(once(), "dead", "exhausted"), {}),
        # Two workers own the job at once.
        ({"overlaps"}, ran_twice(paused()), {}),
        ({"phantoms"}, claims_to_ack_twice(), {}),
        # A crash of which nobody is the cause.
        ({"unexplained"}, ran_twice(Story().claim().start(pid=1).rescue()), {}),
        # A worker that lives renews its lease.
        ({"unexplained"}, ran_twice(Story().claim().start(pid=1).passes(6)), {}),
        # An outcome has a run before it.
        ({"accepted"}, Story().claim().ack(), {}),
        ({"leftovers"}, once(), {"leftovers": ["an advisory lock"]}),
    ],
)
def test_each_violation_is_found_and_only_it(expected, story, changes):
    """One history for each kind of finding, at least."""
    assert expected == violations(verdict_on(story, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"attempt": 0},
        {"attempt": 6},
        {"deliveries": 2},
        {"deliveries": 0, "attempt": 1},
        {"crashes": 1},
        {"leased_by": None},
    ],
    ids=str,
)
def test_a_claim_that_does_not_count_is_illegal(changes):
    """Attempt, delivery and crashes follow rules."""
    story = placed(Story().claim(**changes), "archive", "succeeded")

    assert "illegal" in violations(verdict_on(story))


CRASH = Harm("crash_server", "", None, 100.5, 103.0)


def line(event, at, pid, job=1):
    return {"event": event, "at": at, "pid": pid, "job": job, "delivery": 1}


@pytest.mark.parametrize(
    "started_at, harms, expected",
    [
        (100.0, [CRASH], (11, [10])),
        (98.0, [CRASH], (10, [])),  # By then, its claim was on disk.
        (100.0, [], (10, [])),
        (100.0, [CRASH._replace(kind="terminate_backend")], (10, [])),
        (104.1, [CRASH], (10, [])),  # It began under the claim that there is.
    ],
)
def test_a_crash_of_the_server_forgets_claims_right_before_it(
    started_at, harms, expected
):
    """Whoever started such a job is not taken for who claimed it after the crash."""
    lines = [
        line("start", started_at, 10),
        line("start", 104.2, 11),
        line("end", 104.3, 11),
        {**line("fail", 105.0, 10), "error": "x"},
    ]
    runs, forgotten = runs_of(lines, {(1, 1): 104.0}, harms)

    pid, others = expected
    assert (pid, others) == (runs[1, 1].pid, [each.run.pid for each in forgotten])
    assert (1 if others else 2) == runs[1, 1].starts
    assert (None if others else 105.0) == runs[1, 1].failed_at
