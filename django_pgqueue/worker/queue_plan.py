"""
Queue plan: which queues a worker serves, in which order, and how many jobs of each.

What ``--queues`` and ``--queue-order`` say, read once. Nothing here knows which queues
there are: a plan answers for any name, so a queue that is made tomorrow has its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from django_pgqueue.bounds import PUBLISH_QUEUE

# The highest priority over all queues; queues take equal turns where it is equal.
PRIORITY = "priority"
# Each queue gets its share of the starts; priorities order the jobs of one queue.
WEIGHTED = "weighted"
# A queue that is named earlier goes first; priorities order the jobs of one queue.
STRICT = "strict"

ORDERS = (PRIORITY, WEIGHTED, STRICT)

WEIGHT_MAX = 1_000
CAP_MAX = 10_000

# Names whose entry is remembered: the latest.
NAMES_MAX = 10_000

ENTRY = re.compile(
    r"(?P<without>-)?"
    r"(?P<pattern>\*|[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}\*?)"
    r"(?:=(?P<weight>[0-9]{1,9}))?"
    r"(?::(?P<cap>[0-9]{1,9}))?"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """What is said of one queue, or of each queue that a pattern matches."""

    pattern: str  # A name; a beginning and "*"; or "*".
    place: int  # Among the entries, from 0 on.
    without: bool = False  # Not served.
    weight: int | None = None  # None: 1, and nobody has said so.
    cap: int | None = None  # Jobs of such a queue at once in a process; None: no limit.

    @property
    def is_open(self) -> bool:
        """Whether it may match queues that nobody has named."""
        return self.pattern.endswith("*")

    def __str__(self) -> str:
        weight = "" if self.weight is None else f"={self.weight}"
        cap = "" if self.cap is None else f":{self.cap}"
        return f"{'-' * self.without}{self.pattern}{weight}{cap}"


@dataclass(frozen=True)
class QueuePlan:
    """Which queues are served, and how they share a worker."""

    entries: tuple[Entry, ...] = ()  # Empty: all queues are served alike.
    order: str = PRIORITY

    @cached_property
    def named(self) -> list[str]:
        """Return the queues that are served whether they exist or not."""
        named = [e.pattern for e in self.entries if not e.is_open and not e.without]
        if self.entries and PUBLISH_QUEUE not in named and self.serves(PUBLISH_QUEUE):
            named.append(PUBLISH_QUEUE)
        return named

    @cached_property
    def is_open(self) -> bool:
        """Whether queues are served that nobody has named."""
        return not self.entries or any(
            entry.is_open and not entry.without for entry in self.entries
        )

    @cached_property
    def has_caps(self) -> bool:
        """Whether any queue has a cap."""
        return any(entry.cap is not None for entry in self.entries)

    @cached_property
    def entry(self) -> Callable[[str], Entry | None]:
        """
        What holds for a queue, by its name; None: it is not served. Every wake asks.

        The entry that names it decides; else the one with the longest beginning. The
        queue of messages for later is served unless an entry leaves it out.
        """
        return lru_cache(maxsize=NAMES_MAX)(self._find)

    def serves(self, queue: str) -> bool:
        """Whether jobs of *queue* may be claimed."""
        return self.entry(queue) is not None

    def place(self, queue: str) -> int:
        """Return where *queue* stands in a strict order; lower goes first."""
        entry = self.entry(queue)
        return len(self.entries) if entry is None else entry.place

    def weight(self, queue: str) -> int:
        """Return the weight of *queue*."""
        entry = self.entry(queue)
        return 1 if entry is None or entry.weight is None else entry.weight

    def cap(self, queue: str) -> int | None:
        """Return how many jobs of *queue* a process may hold at once; None: any."""
        entry = self.entry(queue)
        return None if entry is None else entry.cap

    def __str__(self) -> str:
        text = ", ".join(map(str, self.entries)) or "all"
        return text if self.order == PRIORITY else f"{text} ({self.order} order)"

    def _find(self, queue: str) -> Entry | None:
        if not self.entries:
            return EVERY
        found: Entry | None = None
        for entry in self.entries:
            if entry.pattern == queue:
                found = entry
                break
            is_longer = found is None or len(entry.pattern) > len(found.pattern)
            if entry.is_open and queue.startswith(entry.pattern[:-1]) and is_longer:
                found = entry
        if found is None and queue == PUBLISH_QUEUE:
            return EVERY
        return None if found is None or found.without else found


EVERY = Entry(pattern="*", place=0)


@lru_cache(maxsize=64)
def read_plan(texts: Sequence[str], order: str | None = None) -> QueuePlan:
    """
    Read what a worker was told, such as ``("mail=3:4", "report.*", "-report.old")``.

    Args:
        texts: A tuple; one entry each, in order. Empty: all queues alike.
        order: One of ORDERS; None: by weight if there is one, else by priority.

    Raises:
        ValueError: No such entry or order, a number out of its limits, a queue that is
            named twice in two ways, or an order that the entries do not go with.
    """
    entries: list[Entry] = []
    for text in dict.fromkeys(texts):
        entry = read_entry(text, len(entries))
        for other in entries:
            if other.pattern == entry.pattern:
                raise ValueError(
                    f"{entry.pattern!r} is named twice, as {str(other)!r} and as "
                    f"{str(entry)!r}: say it once."
                )
        entries.append(entry)
    if entries and all(entry.without for entry in entries):
        # Nothing but what is left out: all others are served.
        entries.append(Entry(pattern="*", place=len(entries)))
    has_weights = any(entry.weight is not None for entry in entries)
    if order is None:
        order = WEIGHTED if has_weights else PRIORITY
    if order not in ORDERS:
        raise ValueError(f"{order!r} is no order: choose {', '.join(ORDERS)}.")
    if has_weights and order != WEIGHTED:
        raise ValueError(
            f"Weights have no meaning in {order} order: leave them out, or say "
            f"{WEIGHTED!r}."
        )
    return QueuePlan(tuple(entries), order)


def read_entry(text: str, place: int = 0) -> Entry:
    """Read one entry; raise ValueError when it is none."""
    found = ENTRY.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text[:100]!r} is no entry: write NAME, NAME=WEIGHT, NAME:CAP or "
            f"NAME=WEIGHT:CAP, where NAME is a queue, a beginning with * or * alone; "
            f"-NAME leaves out. A name has 1 to 63 letters, digits, '_', '.' and '-', "
            f"the first no '.' or '-'."
        )
    without = found["without"] is not None
    weight = _number(text, "weight", found["weight"], WEIGHT_MAX)
    cap = _number(text, "cap", found["cap"], CAP_MAX)
    if without and (weight is not None or cap is not None):
        raise ValueError(f"{text!r} leaves a queue out: it takes no weight and no cap.")
    if without and found["pattern"] == "*":
        raise ValueError(f"{text!r} leaves out every queue.")
    return Entry(found["pattern"], place, without, weight, cap)


def _number(text: str, what: str, digits: str | None, most: int) -> int | None:
    if digits is None:
        return None
    if not 1 <= int(digits) <= most:
        raise ValueError(
            f"{text!r}: a {what} is a whole number from 1 to {most:,}, not {digits}."
        )
    return int(digits)
