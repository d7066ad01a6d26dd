"""Verdict: what readers have seen, beside what is in the log and in the books."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """A message in its publisher's book; times are monotonic, of one machine."""

    id: int
    topic: str
    key: str | None
    text: str
    begun: float
    committed: float


@dataclass(slots=True)
class Verdict:
    """Everything but the counts is empty when the promise was kept."""

    messages: int = 0
    # By readers that ask for no horizon: without any, the run has proved nothing.
    skipped_by_naive: int = 0
    # Ids that are in the log and that a reader did not see.
    skipped: list[int] = field(default_factory=list)
    twice: list[int] = field(default_factory=list)
    # Seen, and not in the log.
    unexpected: list[int] = field(default_factory=list)
    # Not seen in the order of the ids.
    disordered: list[int] = field(default_factory=list)
    # In the log and in no book, or the other way round.
    unbooked: list[str] = field(default_factory=list)
    # Messages of a key with a lower id than one that was committed before they began.
    inverted: list[int] = field(default_factory=list)

    @property
    def found(self) -> list[str]:
        """The names of what was found."""
        lists = (f.name for f in fields(self) if f.default_factory is list)
        return [name for name in lists if getattr(self, name)]


def judge(
    stored: Mapping[int, tuple[int, str]],
    books: Iterable[Sequence[Any]],
    seen: Iterable[tuple[int, bool, list[int]]],
) -> Verdict:
    """
    Compare the accounts.

    Args:
        stored: Id to topic id and payload of all that is in the log.
        books: Entries of all publishers.
        seen: Of each reader its topic's id, whether it asked for no horizon, and ids.
    """
    entries = [Entry(*each) for each in books]
    verdict = Verdict(messages=len(stored), inverted=inverted(entries))
    booked = {(entry.id, entry.text) for entry in entries}
    there = {(message_id, text) for message_id, (_, text) in stored.items()}
    verdict.unbooked = sorted(text for _, text in booked ^ there)
    for topic_id, is_naive, ids in seen:
        expected = {each for each, (topic, _) in stored.items() if topic == topic_id}
        missed = sorted(expected - set(ids))
        if is_naive:
            verdict.skipped_by_naive += len(missed)
            continue
        verdict.skipped += missed
        verdict.unexpected += sorted(set(ids) - expected)
        verdict.disordered += [b for a, b in pairwise(ids) if b < a]
        counted = sorted(ids)
        verdict.twice += [b for a, b in pairwise(counted) if a == b]
    return verdict


def inverted(entries: Sequence[Entry]) -> list[int]:
    """
    Return ids that are lower than one of their key whose commit came before them.

    The order of a key is that of ids. Of two transactions at the same time it is
    either; of one that began to publish after the other's commit, it is theirs.
    """
    by_key: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.key is not None:
            by_key[entry.topic, entry.key].append(entry)
    found = []
    for those in by_key.values():
        earliest = float("inf")  # Commit of what has a higher id.
        for entry in sorted(those, key=lambda entry: -entry.id):
            if earliest < entry.begun:
                found.append(entry.id)
            earliest = min(earliest, entry.committed)
    return found
