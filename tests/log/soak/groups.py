"""Groups: what the readers of groups have done, beside the log and the faults."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

# Of the groups in tests/app/soak_tasks.py.
TOPIC, QUEUE = "orders", "soak"
LEASE_SECONDS = 3.0

# An effect of each batch of an atomic group, in the order of their transactions; and
# every step of a position that is none forward.
INSTALL = """
CREATE TABLE soak_effect (n bigserial, id bigint NOT NULL, pid integer NOT NULL);
CREATE TABLE soak_step_back (group_id bigint, partition int, text text);
CREATE FUNCTION soak_step_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO soak_step_back VALUES (NEW.group_id, NEW.partition,
        format('%s:%s -> %s:%s', OLD.position, OLD.fence, NEW.position, NEW.fence));
    RETURN NULL;
END $$;
CREATE TRIGGER soak_step_back AFTER UPDATE ON pgqueue_position FOR EACH ROW
    WHEN (NEW.position < OLD.position OR NEW.fence < OLD.fence)
    EXECUTE FUNCTION soak_step_back();
"""
REMOVE = """
DROP TABLE soak_effect;
DROP TRIGGER soak_step_back ON pgqueue_position;
DROP FUNCTION soak_step_back();
DROP TABLE soak_step_back
"""


class Fault(NamedTuple):
    """A process that was killed or stopped; times are monotonic."""

    kind: str
    pid: int
    begun: float
    ended: float


class Taken(NamedTuple):
    """A batch as its handler noted it."""

    pid: int
    at: float
    ids: Sequence[int]


@dataclass(slots=True)
class GroupVerdict:
    """Everything but the counts is empty when the promise was kept."""

    messages: int = 0
    repeated: int = 0
    skipped: list[int] = field(default_factory=list)
    unexpected: list[int] = field(default_factory=list)
    # Given again, though no fault has cut their batch off.
    unexplained: list[int] = field(default_factory=list)
    # First given after a later message of their key.
    disordered: list[int] = field(default_factory=list)

    @property
    def found(self) -> list[str]:
        """The names of what was found."""
        lists = (f.name for f in fields(self) if f.default_factory is list)
        return [name for name in lists if getattr(self, name)]


def judge_group(
    keys: Mapping[int, str | None], batches: Sequence[Taken], faults: Iterable[Fault]
) -> GroupVerdict:
    """
    Judge one group.

    Args:
        keys: By id, the key of every message that is in the log.
        batches: In the order in which they were noted.
        faults: That may have cut batches off; none for a group that is atomic.
    """
    verdict = GroupVerdict(messages=len(keys))
    given = Counter(each for batch in batches for each in batch.ids)
    verdict.skipped = sorted(keys.keys() - given.keys())
    verdict.unexpected = sorted(given.keys() - keys.keys())
    verdict.repeated = sum(count - 1 for count in given.values())
    cut = cut_off(batches, faults)
    whole = Counter(
        each
        for place, batch in enumerate(batches)
        if place not in cut
        for each in batch.ids
    )
    verdict.unexplained = sorted(each for each, count in whole.items() if count > 1)
    seen: set[int] = set()
    latest: dict[str, int] = defaultdict(int)
    for batch in batches:
        for each in batch.ids:
            key = keys.get(each)
            if each in seen or key is None:
                continue
            if each < latest[key]:
                verdict.disordered.append(each)
            latest[key] = max(latest[key], each)
        seen.update(batch.ids)
    return verdict


def cut_off(batches: Sequence[Taken], faults: Iterable[Fault]) -> set[int]:
    """
    Return the places of batches whose position may not have moved.

    Of a process that was killed or stopped, the last one noted before; of one that
    went on, also the first one after: its partition may be somebody else's by then.
    """
    found = set()
    for fault in faults:
        of_it = [n for n, batch in enumerate(batches) if batch.pid == fault.pid]
        before = [n for n in of_it if batches[n].at <= fault.begun]
        after = [n for n in of_it if batches[n].at > fault.begun]
        found.update(before[-1:])
        found.update(after[:1])
    return found


def taken_of(entries: Iterable[Any]) -> list[Taken]:
    """Return the batches that a ledger has."""
    return [Taken(entry.pid, entry.at, entry.note) for entry in entries]
