"""Evidence: what a run has left behind, in the forms that the verdict reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.faults.history import Change
from tests.faults.schedules import Schedule, Step, Tick

# What a fault may still cause after it is over: a worker's loops come back after a
# pause of up to five seconds, and a lease that they could not renew ends meanwhile.
AFTERMATH_SECONDS = 6.0

# Two clocks are read one after the other: the trigger's and a task's.
CLOCK_SECONDS = 0.002

# A few jobs start before their claim is on the server's disk, which is made sure of
# right after; and where its process does not come to that, the server's own writer does
# it within three times its wal_writer_delay of 0.2 s.
FORGOTTEN_SECONDS = 1.0

KILLS = frozenset(
    {"kill", "kill_process", "kill_group", "kill_all", "kill_supervisor", "poison"}
)


class Harm(NamedTuple):
    """A fault that happened: what, to whom, from when until when."""

    kind: str
    what: str
    pids: frozenset[int] | None  # None: everybody.
    since: float
    until: float

    def hits(self, pid: int | None) -> bool:
        """Whether a process is among its victims; one that is unknown may be."""
        return self.pids is None or pid is None or pid in self.pids

    def covers(self, since: float, until: float) -> bool:
        """Whether it may be felt in this time."""
        return self.since <= until and self.until + AFTERMATH_SECONDS >= since


class SagaRow(NamedTuple):
    """A workflow and its steps, as the package's own rows have them at the end."""

    id: int
    key: str
    state: str
    active: int
    counts: Mapping[str, int]  # Of steps, by how they ended.
    states: Mapping[str, str]  # Of its steps and compensations, by name.


class Operation(NamedTuple):
    """A transaction of a client, and what the client knows of it."""

    key: str
    size: int
    outcome: str  # "ack", "fail" or "unknown".
    at: float
    planned: bool = False  # It failed because it was to.
    error: str = ""
    answered_at: float | None = None  # None: never.


@dataclass(slots=True)
class Run:
    """What the ledger says of one delivery."""

    job: int
    delivery: int
    pid: int
    started_at: float
    starts: int = 1
    ended_at: float | None = None
    failed_at: float | None = None
    error: str | None = None


class Forgotten(NamedTuple):
    """A run of a claim that a crash of the server forgot: decision record 24."""

    run: Run
    crash: Harm


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that is known about a run."""

    operations: Sequence[Operation] = ()
    committed_operations: frozenset[str] = frozenset()
    runs: Mapping[tuple[int, int], Run] = field(default_factory=dict)
    # Runs of claims that a crash of the server forgot.
    forgotten: Sequence[Forgotten] = ()
    # (event, job, delivery, kind) of what workers said: "told" and "stale".
    told: Sequence[tuple[str, int, int, str]] = ()
    leaks: Sequence[str] = ()
    # The last line of each worker process, by its name: until then it certainly lived.
    last_seen: Mapping[str, float] = field(default_factory=dict)
    pids: Mapping[str, int] = field(default_factory=dict)  # By the worker's name.
    harms: Sequence[Harm] = ()
    changes: Sequence[Change] = ()
    # Where each job is at the end: (place, state) of each of its rows.
    places: Mapping[int, Sequence[tuple[str, str | None]]] = field(default_factory=dict)
    effects: Sequence[tuple[int, int, str, str]] = ()
    schedules: Sequence[Schedule] = ()
    ticks: Sequence[Tick] = ()
    steps: Sequence[Step] = ()
    sagas: Sequence[SagaRow] = ()
    # (job, saga, state of the saga, reason) of dead letters, before people acted.
    waiting: Sequence[tuple[int, str, str, str]] = ()
    leftovers: Sequence[str] = ()
    statuses: Sequence[int | None] = ()
    log_lines: Sequence[str] = ()
    healed_at: float = 0.0
    drained_at: float | None = None
    measures: Mapping[str, Any] = field(default_factory=dict)


def operations_of(lines: Sequence[Mapping[str, Any]]) -> list[Operation]:
    """Return the transactions of a client ledger; one without an answer is unknown."""
    found: dict[str, Operation] = {}
    for line in lines:
        key = line["key"]
        if line["event"] == "attempt":
            found[key] = Operation(key, line["size"], "unknown", line["at"])
        else:
            found[key] = found[key]._replace(
                outcome=line["event"],
                planned=line.get("planned", False),
                error=line.get("text", ""),
                answered_at=line["at"],
            )
    return list(found.values())


def last_seen_of(
    started: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """
    Return when each worker process wrote its last line, by its name.

    A system gives a process id again: whoever wrote under it is the process that had
    started last by then.

    Args:
        started: A line of each process that said its name.
        lines: Of the tasks.
    """
    by_pid: dict[int, list[tuple[float, str]]] = {}
    for line in started:
        by_pid.setdefault(line["pid"], []).append((line["at"], line["name"]))
    seen: dict[str, float] = {}
    for line in lines:
        names = by_pid.get(line["pid"], [])
        known = [name for at, name in names if at <= line["at"]]
        if known:
            seen[known[-1]] = line["at"]
    return seen


def claims_of(changes: Sequence[Change]) -> dict[tuple[int, int], float]:
    """Return when each (job, delivery) was claimed."""
    return {
        (change.job, change.new.deliveries): change.new.leased_at or change.at
        for change in changes
        if change.place == "queue"
        and change.old is not None
        and change.new is not None
        and change.old.deliveries != change.new.deliveries
    }


def runs_of(
    lines: Sequence[Mapping[str, Any]],
    claims: Mapping[tuple[int, int], float],
    harms: Sequence[Harm],
) -> tuple[dict[tuple[int, int], Run], list[Forgotten]]:
    """
    Return what a task ledger says of each (job, delivery), and of forgotten claims.

    Args:
        lines: Of the tasks.
        claims: When each was claimed, as the history has it.
        harms: What began before its claim, and right before the server crashed, is of
            another claim, which the crash forgot.
    """
    runs: dict[tuple[int, int], Run] = {}
    forgotten: dict[tuple[int, int, int], Forgotten] = {}
    for line in lines:
        if line["event"] not in ("start", "end", "fail"):
            continue
        lease = (line["job"], line["delivery"])
        if line["event"] == "start":
            run = Run(*lease, line["pid"], line["at"])
            crash = _forgot(run, claims, harms)
            if crash is not None:
                forgotten[*lease, run.pid] = Forgotten(run, crash)
            elif lease in runs:
                runs[lease].starts += 1
            else:
                runs[lease] = run
            continue
        known = forgotten.get((*lease, line["pid"]))
        run = runs[lease] if known is None else known.run
        if line["event"] == "end":
            run.ended_at = line["at"]
        else:
            run.failed_at, run.error = line["at"], line["error"]
    return runs, list(forgotten.values())


def _forgot(
    run: Run, claims: Mapping[tuple[int, int], float], harms: Sequence[Harm]
) -> Harm | None:
    """Return the crash of the server that forgot a run's claim, if one did."""
    claimed_at = claims.get((run.job, run.delivery), 0.0)
    if run.started_at >= claimed_at - CLOCK_SECONDS:
        return None
    for harm in harms:
        if (
            harm.kind == "crash_server"
            and harm.since - FORGOTTEN_SECONDS <= run.started_at <= harm.until
        ):
            return harm
    return None


def harms_of(lines: Sequence[Mapping[str, Any]], ended_at: float) -> list[Harm]:
    """Return what a fault ledger says; one that was not healed lasted until the end."""
    healed = {line["id"]: line["at"] for line in lines if line["event"] == "healed"}
    harms = []
    for line in lines:
        if line["event"] != "fault":
            continue
        until = line["at"] + line.get("seconds", 0.0)
        if "id" in line:
            until = healed.get(line["id"], ended_at)
        pids = None if line["pids"] is None else frozenset(line["pids"])
        harms.append(Harm(line["kind"], line.get("what", ""), pids, line["at"], until))
    return harms
