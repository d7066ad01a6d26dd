"""
Saga checks: each saga ends succeeded or compensated, never both, never neither: I11.

What a saga has done is told by the history of its jobs and by the rows that its tasks
have written, and not by the package's own rows of workflows, which must say the same.
Which jobs are of one saga is told by their arguments.

A plain step may run twice, and so may a plain compensation: at least once is their
contract. So they are counted by the job that has succeeded, and its rows may be more
than one. Those of atomic ones may not. A row is written between the claim of its job
and its end: so the order of jobs is that of rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from tests.faults.capacities import RELUCTANT_TIMES
from tests.faults.evidence import Evidence
from tests.faults.history import Change
from tests.faults.verdict import Verdict

STEPS = ("reserve", "charge", "pack", "ship")
UNDOES = {"release": "reserve", "refund": "charge", "unpack": "pack"}
ATOMIC = frozenset({"charge", "ship", "release", "unpack"})

# Of those that give up, so many in a hundred may have been hit by a fault instead.
COMPENSATED_SHARE_MIN = 0.1


class Part(NamedTuple):
    """One job of a saga: when it came and went, and what became of it."""

    job: int
    task: str
    how: str  # Where its saga gives up, and how compensations behave then.
    stored: int  # By the order of the history.
    gone: float  # Infinite: never.
    ends: frozenset[str]  # The states of its rows in the archive and the dead letters.
    attempt: int  # The last one.
    delivery: int

    @property
    def has_succeeded(self) -> bool:
        """Whether it did what it was for."""
        return "succeeded" in self.ends

    @property
    def was_set_aside(self) -> bool:
        """Whether people did it by hand."""
        return "cancelled" in self.ends


def parts_of(evidence: Evidence) -> Mapping[str, Sequence[Part]]:
    """Return the jobs of each saga, by its key, in the order in which they came."""
    changes: dict[int, list[Change]] = defaultdict(list)
    for change in evidence.changes:
        if change.saga is not None:
            changes[change.job].append(change)
    sagas: dict[str, list[Part]] = defaultdict(list)
    for job, its in changes.items():
        sagas[str(its[0].saga)].append(_part(job, its))
    for parts in sagas.values():
        parts.sort(key=attrgetter("stored"))
    return sagas


def _part(job: int, changes: Sequence[Change]) -> Part:
    here = [change for change in changes if change.place == "queue"]
    rows = [
        change.new
        for change in changes
        if change.place != "queue" and change.new is not None
    ]
    gone = [change.seq for change in here if change.operation == "DELETE"]
    stored = [change.seq for change in here if change.operation == "INSERT"]
    return Part(
        job=job,
        task=changes[0].task,
        how=changes[0].how or "",
        stored=min(stored),
        gone=max(gone) if len(gone) == len(stored) else float("inf"),
        ends=frozenset(str(row.state) for row in rows),
        attempt=max((row.attempt for row in rows), default=0),
        delivery=max((row.deliveries for row in rows), default=0),
    )


def sagas_end(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Each is succeeded or compensated in the end, and none of its steps is active."""
    known = {saga.key for saga in evidence.sagas}
    for key in parts_of(evidence).keys() - known:
        yield f"{key} is no workflow"
    for saga in evidence.sagas:
        if saga.state not in ("succeeded", "compensated"):
            yield f"{saga.key} is {saga.state}: {saga.states}"
        if saga.active:
            yield f"{saga.key} is {saga.state} with {saga.active} active steps"


def sagas_are_whole(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Succeeded: all is done and nothing undone. Compensated: all that is done, is."""
    states = {saga.key: saga.state for saga in evidence.sagas}
    for key, parts in parts_of(evidence).items():
        state = states.get(key, "gone")
        times = Counter(part.task for part in parts)
        for task, count in times.items():
            if count > 1:
                yield f"{key} is {state}: {task} was stored {count} times"
        done = [part.task for part in parts if part.has_succeeded]
        undone = {
            UNDOES[part.task]
            for part in parts
            if part.task in UNDOES and (part.has_succeeded or part.was_set_aside)
        }
        steps = [task for task in done if task in STEPS]
        # ship has nothing that undoes it.
        to_undo = set(steps) & set(UNDOES.values()) if state == "compensated" else set()
        if undone != to_undo:
            yield f"{key} is {state}: done {steps}, undone {sorted(undone)}"
        if (state == "succeeded") != (set(steps) == set(STEPS)):
            yield f"{key} is {state}: done {steps} of {STEPS}"


def sagas_keep_order(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """One job at a time: steps in their order, and what undoes them in the reverse."""
    for key, parts in parts_of(evidence).items():
        for first, second in pairwise(parts):
            if second.stored < first.gone:
                yield f"{key}: {second.task} was stored before {first.task} had ended"
        steps = [part.task for part in parts if part.task in STEPS]
        if steps != list(STEPS[: len(steps)]):
            yield f"{key}: the steps came as {steps}"
        undone = [UNDOES[part.task] for part in parts if part.task in UNDOES]
        ended = sorted(
            (part for part in parts if part.task in STEPS and part.has_succeeded),
            key=attrgetter("gone"),
            reverse=True,
        )
        expected = [part.task for part in ended if part.task in UNDOES.values()]
        if undone != expected[: len(undone)]:
            yield f"{key}: undone as {undone}, not as {expected}"


def sagas_give_up_as_planned(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """One step gives up at most: the planned one, or one whose process died often."""
    for key, parts in parts_of(evidence).items():
        gave_up = [part for part in parts if part.task in STEPS and _gave_up(part)]
        planned = parts[0].how.partition(" ")[0]
        for part in gave_up:
            if part.task != planned and "worker_lost" not in part.ends:
                yield f"{key}: {part.task} gave up, as {sorted(part.ends)}"
        if len(gave_up) > 1:
            yield f"{key}: {[part.task for part in gave_up]} gave up"


def _gave_up(part: Part) -> bool:
    return bool(part.ends - {"succeeded", "cancelled"})


def effects_are_those_of_sagas(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """What has succeeded has written its row, and what has not has written none."""
    rows: dict[int, Counter[int]] = defaultdict(Counter)
    keys: dict[int, set[str]] = defaultdict(set)
    for job, delivery, key, _ in evidence.effects:
        rows[job][delivery] += 1
        keys[job].add(key)
    for key, parts in parts_of(evidence).items():
        for part in parts:
            written = rows[part.job]
            expected = f"{key}/{part.task}"
            if part.task in UNDOES:
                expected = f"{key}/{UNDOES[part.task]} undone"
            if keys[part.job] - {expected}:
                yield f"{key}: {part.task} wrote {sorted(keys[part.job])}"
            if part.has_succeeded and written[part.delivery] != 1:
                yield (
                    f"{key}: {part.task} has succeeded with delivery {part.delivery} "
                    f"and wrote {dict(written)}"
                )
            if part.task in ATOMIC and written.total() != part.has_succeeded:
                yield f"{key}: {part.task} is atomic and wrote {dict(written)}"
            # A process that dies thrice may have written before.
            if not part.has_succeeded and written and "worker_lost" not in part.ends:
                yield f"{key}: {part.task} is {sorted(part.ends)} and wrote a row"


def sagas_leave_nothing(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """No job of a saga is left in a queue, and none among the dead letters."""
    for key, parts in parts_of(evidence).items():
        for part in parts:
            for place, state in evidence.places.get(part.job, [("nowhere", None)]):
                if place != "archive":
                    yield f"{key}: {part.task} is left in {place}: {state}"


def sagas_say_what_was(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """The package's rows of a saga and its steps say what the history does."""
    parts = parts_of(evidence)
    for saga in evidence.sagas:
        its = {part.task: part for part in parts.get(saga.key, ())}
        said = {name for name, state in saga.states.items() if state == "succeeded"}
        done = {task for task, part in its.items() if part.has_succeeded}
        if said != done:
            yield f"{saga.key} says that {sorted(said)} succeeded, not {sorted(done)}"
        steps = Counter(saga.states[name] for name in STEPS if name in saga.states)
        for state in ("succeeded", "dead"):
            if saga.counts[state] != steps[state]:
                yield f"{saga.key} counts {dict(saga.counts)}, and has {dict(steps)}"


def sagas_went_both_ways(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Some succeeded, and enough were compensated, or too little was tried."""
    states = Counter(saga.state for saga in evidence.sagas)
    least = COMPENSATED_SHARE_MIN * len(evidence.sagas)
    if not states["succeeded"] or states["compensated"] < max(least, 1):
        yield f"the sagas ended as {dict(states)}"


def people_are_seldom_needed(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Only a compensation whose process died again and again waits for them."""
    for job, key, state, reason in evidence.waiting:
        if (state, reason) != ("compensating", "worker_lost"):
            yield f"{key} was {state}, with job {job} dead: {reason}"


def the_stubborn_wait_for_people(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """One that is rejected holds its saga up, as a dead letter; no other does."""
    waiting = Counter(key for _, key, _, _ in evidence.waiting)
    for _, key, state, reason in evidence.waiting:
        if state != "compensating" or reason not in ("rejected", "worker_lost"):
            yield f"{key} was {state}, with a job dead: {reason}"
    seen: Counter[str] = Counter()
    for key, parts in parts_of(evidence).items():
        if waiting[key] > 1:
            yield f"{key} had {waiting[key]} dead letters at once"
        undoing = [part for part in parts if part.task in UNDOES]
        mood = parts[0].how.partition(" ")[2]
        if mood == "stubborn" and undoing and "rejected" not in undoing[0].ends:
            yield f"{key} did not reject {undoing[0].task}"
        for part in undoing:
            if "rejected" in part.ends:
                seen["set aside" if part.was_set_aside else "redriven"] += 1
                if mood != "stubborn":
                    yield f"{key} rejected {part.task}"
                if not waiting[key]:
                    yield f"{key} did not wait for people"
    if not seen["redriven"] or not seen["set aside"]:
        yield f"people have had too little to do: {dict(seen)}"


def the_reluctant_are_retried(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """A compensation that fails is tried again until it works, and the next waits."""
    retried = 0
    for key, parts in parts_of(evidence).items():
        if parts[0].how.partition(" ")[2] != "reluctant":
            continue
        for part in parts:
            if part.task in UNDOES:
                retried += 1
                if part.has_succeeded and part.attempt != RELUCTANT_TIMES + 1:
                    yield f"{key}: {part.task} worked at attempt {part.attempt}"
    if not retried:
        yield "no compensation was reluctant"


# Of each row that has sagas.
ALWAYS = (
    sagas_end,
    sagas_are_whole,
    sagas_keep_order,
    sagas_give_up_as_planned,
    effects_are_those_of_sagas,
    sagas_leave_nothing,
    sagas_say_what_was,
    sagas_went_both_ways,
)
