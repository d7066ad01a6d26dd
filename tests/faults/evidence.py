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


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that is known about a run."""

    operations: Sequence[Operation] = ()
    committed_operations: frozenset[str] = frozenset()
    runs: Mapping[tuple[int, int], Run] = field(default_factory=dict)
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


def runs_of(lines: Sequence[Mapping[str, Any]]) -> dict[tuple[int, int], Run]:
    """Return what a task ledger says of each (job, delivery)."""
    runs: dict[tuple[int, int], Run] = {}
    for line in lines:
        if line["event"] not in ("start", "end", "fail"):
            continue
        lease = (line["job"], line["delivery"])
        if line["event"] == "start":
            if lease in runs:
                runs[lease].starts += 1
            else:
                runs[lease] = Run(*lease, line["pid"], line["at"])
        elif line["event"] == "end":
            runs[lease].ended_at = line["at"]
        else:
            runs[lease].failed_at, runs[lease].error = line["at"], line["error"]
    return runs


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
