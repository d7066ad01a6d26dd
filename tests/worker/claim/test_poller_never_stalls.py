"""
No job waits for the poll whose producer has announced it, or left that to another wake.

The claimer lives in virtual time, where the poll is ten minutes away, through dozens
of stories that seeds tell. PGQUEUE_POLLER_SEEDS asks for more.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.harness import seeds
from tests.worker.claim.poller_world import Scene, Story, play

SEEDS = int(os.environ.get("PGQUEUE_POLLER_SEEDS", "48"))
FIRST = seeds.seed(seeds.POLLER)

# A re-check and some rounds; and a look at what somebody held.
LIMIT_SECONDS, HELD_SECONDS = 0.4, 1.0

FEW = ["a", "b", "c"]


def one_queue(chance: random.Random) -> Scene:
    """A queue, often served by name."""
    return Scene(
        queues=["a"],
        served=chance.choice([(), ("a",), ("a*",)]),
        others=chance.choice([0, 0.5]),
        holds=chance.choice([0, 0.1]),
        producers=chance.choice([1, 4]),
        delays=chance.choice([0, 0.2]),
    )


def few_queues(chance: random.Random) -> Scene:
    """Three queues in some order, perhaps with a cap; other workers beside."""
    served, order = chance.choice(
        [
            ((), None),
            (("a", "b", "c"), None),
            (("a", "b", "*"), "strict"),
            (("a=3", "b", "c"), None),
            (("a:2", "*"), None),
        ]
    )
    return Scene(
        queues=FEW,
        served=served,
        order=order,
        others=chance.choice([0, 0.3, 0.8]),
        priorities=chance.choice([(0,), (0, 5, 9)]),
        retries=chance.choice([0, 0.3]),
        bursts=16,
        threads=chance.choice([2, 8]),
    )


def new_queues(chance: random.Random) -> Scene:
    """Now and then a queue that nobody has met."""
    return Scene(
        queues=chance.choice([["a"], FEW]),
        is_ever_new=True,
        others=chance.choice([0, 0.5]),
        noise=chance.choice([0, 0, 300]),
        bursts=20,
    )


def many_queues(chance: random.Random) -> Scene:
    """More than a round sees in a tick."""
    names = [f"q{number}" for number in range(chance.choice([50, 200]))]
    return Scene(
        queues=chance.choice([names, FEW]),
        resting=chance.choice([0, 90, 400]),
        is_ever_new=chance.choice([False, True]),
        others=chance.choice([0, 0.4]),
        retries=chance.choice([0, 0.2]),
        bursts=12,
        slow=chance.choice([0, 0.2]),
        slow_seconds=0.006,
    )


def slow_looks(chance: random.Random) -> Scene:
    """Looks that take long, and retries that commit meanwhile."""
    return Scene(
        queues=chance.choice([["a"], FEW]),
        served=chance.choice([(), ("a", "b", "c")]),
        slow=chance.choice([0.1, 0.5]),
        slow_seconds=chance.choice([0.004, 0.05, 0.4]),
        retries=0.5,
        others=chance.choice([0, 0.4]),
        runs_seconds=chance.choice([0.002, 0.02]),
        bursts=14,
    )


def failures(chance: random.Random) -> Scene:
    """A database that goes away, in the midst of whatever."""
    return Scene(
        queues=FEW,
        fails=chance.choice([0.01, 0.05]),
        others=chance.choice([0, 0.4]),
        retries=0.2,
        is_ever_new=chance.choice([False, True]),
        bursts=14,
    )


def coroutines(chance: random.Random) -> Scene:
    """Queues of async jobs beside others."""
    return Scene(
        queues=FEW,
        async_queues=frozenset(chance.choice([["a"], ["a", "b"], FEW])),
        others=chance.choice([0, 0.4]),
        retries=chance.choice([0, 0.3]),
        is_ever_new=chance.choice([False, True]),
        threads=chance.choice([3, 8]),
        bursts=16,
    )


def streams(chance: random.Random) -> Scene:
    """So many commits that most of their wakes are left out, and a few beside them."""
    return Scene(
        queues=["busy"] * 30 + FEW,
        bursts=3,
        burst_jobs=400,
        gaps=(0.0005, 0.001, 0.004),
        producers=chance.choice([1, 3]),
        others=chance.choice([0, 0.3]),
        runs_seconds=0.002,
        retries=chance.choice([0, 0.02]),
    )


SCENES = [
    one_queue,
    few_queues,
    new_queues,
    many_queues,
    slow_looks,
    failures,
    coroutines,
    streams,
]
STREAMS_SHARE = 4  # They are long.


@pytest.mark.timeout(60 + SEEDS)
@pytest.mark.seed(seeds.POLLER)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_no_job_waits_for_the_poll(scene, monkeypatch):
    """Each starts soon after it could, whatever happened around it."""
    seeds = SEEDS // len(SCENES)
    if scene is streams:
        seeds = max(seeds // STREAMS_SHARE, 1)
    stories = [tell(scene, seed, monkeypatch) for seed in range(FIRST, FIRST + seeds)]

    late = {
        FIRST + number: [
            (late.row.queue, round(late.seconds, 3)) for late in story.late
        ]
        for number, story in enumerate(stories)
        if story.late
    }
    assert {} == late
    # They were stories: of jobs that started, and of some wakes that were left out.
    assert sum(story.started for story in stories) > 10 * seeds
    if scene is streams:
        assert sum(story.left_out for story in stories) > 10 * seeds


def tell(scene, seed: int, monkeypatch) -> Story:
    chance = random.Random(f"{scene.__name__} {seed}")
    given = scene(chance)
    given.quiet_seconds = chance.choice([None, 0.01, 0.06])
    # A ration of a tenth of the time that rounds take.
    slices = 1 + (len(given.queues) + given.resting) // 40
    limit = LIMIT_SECONDS + 10 * slices * given.slow_seconds
    limit += HELD_SECONDS if given.holds else 0.0
    return play(monkeypatch, seed, given, limit)
