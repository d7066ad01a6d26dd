"""
Plan: what a run will do, drawn from its seed before anything starts.

The same row, seed and share of full size give the same plan: the same faults at the
same moments on the same victims by rank, the same operations of the same clients, jobs
that take as long and fail as often. What processes make of it varies, as it must.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Faults of one kind, spread over the fault phase."""

    kind: str  # The name of a function of injectors.py.
    count: int  # At full size.
    count_min: int = 1
    together: int = 1  # So many at the same moment, on different victims.
    lasts: tuple[float, float] = (0.0, 0.0)  # Seconds.
    is_scaled: bool = False  # Whether a smaller run has shorter faults, not fewer.
    first_after: float = 0.0  # Seconds from the start of the phase.
    what: tuple[str, ...] = ("",)  # Variants, taken in turn.
    victims: int = 0  # To choose from; 0: the processes of the row.


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What clients enqueue while faults happen."""

    jobs: int  # At full size; paced evenly over the phase.
    clients: int = 2
    sizes: tuple[int, ...] = (1, 1, 1, 1, 20)  # Jobs in a transaction, drawn evenly.
    tasks: Mapping[str, float] = field(default_factory=lambda: {"work": 1.0})
    seconds: tuple[float, float] = (0.005, 0.05)  # A handler's time.
    slow_share: float = 0.0
    slow_seconds: tuple[float, float] = (4.0, 6.0)
    failing_share: float = 0.05  # Jobs that raise on their first attempt; sagas.
    rejected_share: float = 0.0  # Jobs that give up for good.
    rolled_back_share: float = 0.05
    # Who shares a group or a limit: each transaction is about one of so many.
    customers: int = 0
    loud_share: float = 0.0  # Transactions that are about the first one whatever drawn.
    open_seconds: tuple[float, float] = (0.0, 0.0)  # From the insert to the COMMIT.
    # Transactions that end by a fault of their own, planned: how, and how many.
    endings: Mapping[str, int] = field(default_factory=dict)
    # Jobs of a kind of their own among the others, so many of each (at least one).
    mixed_in: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    mixed_count: int = 0
    # Sagas: at which steps they give up, and how compensations behave then.
    steps: tuple[str, ...] = ()
    moods: tuple[str, ...] = ("",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of a plan."""

    at: float  # Seconds from the start of the phase.
    kind: str
    victim: int  # Its rank among those that live by then, modulo their number.
    seconds: float = 0.0  # How long it lasts.
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One transaction of a client."""

    key: str
    at: float
    ending: str  # "commit", "rollback", "savepoint", or a fault.
    jobs: tuple[tuple[str, dict[str, Any]], ...]  # (task, arguments).
    open_seconds: float = 0.0  # From the insert to the COMMIT.


def scaled(count: int, share: float, least: int = 1) -> int:
    """Return *share* of a full-size count."""
    return max(least, math.ceil(count * share)) if count else 0


def plan_faults(
    series: tuple[Series, ...],
    *,
    row: str,
    seed: int,
    share: float,
    seconds: float,
    victims: int,
) -> list[Fault]:
    """
    Return the faults of a run, in the order in which they happen.

    Args:
        series: What the row asks for.
        row: Its name.
        seed: The same seed, the same faults.
        share: Of the full size; 1 is all.
        seconds: Length of the phase.
        victims: How many there are to choose from.
    """
    faults: list[Fault] = []
    for place, one in enumerate(series):
        rng = random.Random(f"{row}:{seed}:{place}:{one.kind}")
        count = one.count if one.is_scaled else scaled(one.count, share, one.count_min)
        waves = math.ceil(count / one.together)
        period = (seconds - one.first_after) / waves
        for wave in range(waves):
            size = min(one.together, count - wave * one.together)
            ranks = rng.sample(range(max(one.victims or victims, size)), size)
            for victim in ranks:
                lasts = rng.uniform(*one.lasts) * (share if one.is_scaled else 1.0)
                # One fault alone begins where the row says.
                room = max(period - lasts, 0.0) * 0.5 if waves > 1 else 0.0
                jitter = rng.random() * room
                faults.append(
                    Fault(
                        at=one.first_after + wave * period + jitter,
                        kind=one.kind,
                        victim=victim,
                        seconds=lasts,
                        what=one.what[len(faults) % len(one.what)],
                    )
                )
    return sorted(faults, key=lambda fault: fault.at)


def plan_operations(
    load: Load, *, row: str, seed: int, share: float, seconds: float, client: int
) -> Iterator[Operation]:
    """
    Yield the transactions of one client, in their order.

    Args:
        load: What the row asks for.
        row: Its name.
        seed: The same seed, the same operations.
        share: Of the full size; 1 is all.
        seconds: Length of the phase.
        client: Which one, from 0.
    """
    rng = random.Random(f"{row}:{seed}:client:{client}")
    jobs = scaled(load.jobs, share) // load.clients
    extras = _extras(load, share)[client :: load.clients]
    rng.shuffle(extras)
    endings = _endings(load, share)[client :: load.clients]
    rng.shuffle(endings)
    sizes: list[int] = []
    while sum(sizes) < jobs:
        sizes.append(min(rng.choice(load.sizes), jobs - sum(sizes)))
    # Each extra job in a transaction of its own, at a place of its own.
    places: list[tuple[int, Any]] = [(size, None) for size in sizes]
    for extra in extras:
        places.insert(rng.randrange(len(places) + 1), (1, extra))
    for n, (size, extra) in enumerate(places):
        key = f"{client}-{n}"
        ending = endings.pop() if endings and extra is None else "commit"
        if ending == "commit" and extra is None:
            drawn = rng.random()
            if drawn < load.rolled_back_share:
                ending = (
                    "rollback" if drawn < load.rolled_back_share / 2 else ("savepoint")
                )
        wanted = [extra] * size if extra else [None] * size
        shared: dict[str, Any] = {}
        if load.customers:
            is_loud = load.loud_share > 0 and rng.random() < load.loud_share
            shared["customer"] = f"c{0 if is_loud else rng.randrange(load.customers)}"
        yield Operation(
            key=key,
            at=seconds * n / len(places),
            ending=ending,
            jobs=tuple(
                _job(load, rng, f"{key}.{place}", which, shared)
                for place, which in enumerate(wanted)
            ),
            open_seconds=rng.uniform(*load.open_seconds) if load.open_seconds[1] else 0,
        )


def _job(
    load: Load,
    rng: random.Random,
    key: str,
    extra: tuple[str, str] | None,
    shared: Mapping[str, Any],
) -> tuple[str, dict[str, Any]]:
    if extra is not None:
        task, how = extra
        return task, {"key": key, "how": how}
    task = rng.choices(list(load.tasks), list(load.tasks.values()))[0]
    slow = rng.random() < load.slow_share
    seconds = rng.uniform(*(load.slow_seconds if slow else load.seconds))
    drawn = rng.random()
    if load.steps:
        gives_up = f"{rng.choice(load.steps)} {rng.choice(load.moods)}".strip()
        how = gives_up if drawn < load.failing_share else ""
        return task, {"key": key, "seconds": round(seconds, 4), "how": how}
    fails = int(drawn < load.failing_share) - int(drawn > 1 - load.rejected_share)
    return task, {"key": key, "seconds": round(seconds, 4), "fails": fails, **shared}


def _extras(load: Load, share: float) -> list[tuple[str, str]]:
    kinds = [(task, how) for task, hows in load.mixed_in.items() for how in hows]
    if not kinds:
        return []
    count = max(scaled(load.mixed_count, share), len(kinds))
    return [kinds[n % len(kinds)] for n in range(count)]


def _endings(load: Load, share: float) -> list[str]:
    return [
        ending
        for ending, count in load.endings.items()
        for _ in range(scaled(count, share))
    ]
