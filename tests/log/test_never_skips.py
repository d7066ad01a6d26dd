"""
The log never skips: a soak with publishers that do their worst, and broken builds.

All runs are started with the first test, each in a database of its own, and each test
waits for its own: a publisher waits more than it works.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from django.db import connections

from tests.harness import seeds
from tests.log.soak.broken import BROKEN, NEAR_THE_WRAP, STRETCHED
from tests.log.soak.run import Soak, copied, run, url_of
from tests.log.soak.verdict import Verdict, judge

# `python -m tests.log.soak` is of full size: 100,000.
MESSAGES = int(os.environ.get("PGQUEUE_SOAK_MESSAGES", "2000"))
MESSAGES_SMALL = 500
LANES = 4

# A broken build may be lucky, on a busy machine above all.
BROKEN_RUNS = 4

RUNS = {
    "as it is": Soak(messages=MESSAGES),
    "stretched": Soak(messages=MESSAGES_SMALL, change=STRETCHED),
    # A lock's key has 32 bits, with a sign.
    "2^31": Soak(messages=MESSAGES_SMALL, start=2**31 - 150),
    "2^32": Soak(messages=MESSAGES_SMALL, start=NEAR_THE_WRAP),
    "3 * 2^32": Soak(messages=MESSAGES_SMALL, start=3 * 2**32 - 150),
    **{
        name: Soak(messages=MESSAGES_SMALL, start=change.start, change=change)
        for name, change in BROKEN.items()
    },
}


@pytest.fixture(scope="module")
def verdicts(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any
) -> Iterator[dict[str, Future[Verdict]]]:
    """The verdicts to come, by name, of the tests that were selected."""
    selected = [
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and hasattr(item, "callspec")
    ]
    with django_db_blocker.unblock():
        name = str(connections["default"].settings_dict["NAME"])
        for connection in connections.all():
            connection.close()  # Whoever is connected to it keeps it from being copied.
        url = url_of("default")
    with ExitStack() as stack:
        stack.enter_context(copied(url, name, f"{name}_soak"))
        lanes = stack.enter_context(ThreadPoolExecutor(LANES))

        def judged(number: int, soak: Soak) -> Verdict:
            runs = BROKEN_RUNS if soak.change in BROKEN.values() else 1
            for seed in range(soak.seed, soak.seed + runs):
                copy = copied(url, f"{name}_soak", f"{name}_soak_{number}")
                with copy as place:
                    verdict = run(replace(soak, seed=seed), place)
                if verdict.found:
                    break
            return verdict

        yield {
            each: lanes.submit(judged, number, RUNS[each])
            for number, each in enumerate(selected)
        }


@pytest.mark.slow
@pytest.mark.seed(seeds.FAULTS)
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", [name for name in RUNS if name not in BROKEN])
def test_no_reader_skips_a_message(name, verdicts):
    """Of transactions of any shape, at any id; each once, in the order of its key."""
    verdict = verdicts[name].result()
    assert [] == verdict.found, verdict
    assert RUNS[name].messages <= verdict.messages
    # Else nothing was out of order, and this has proved nothing.
    assert verdict.skipped_by_naive > 0


@pytest.mark.slow
@pytest.mark.seed(seeds.FAULTS)
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", BROKEN)
def test_a_log_without_a_protection_is_found_out(name, verdicts):
    """By the messages that its readers skip."""
    assert ["skipped"] == verdicts[name].result().found


def test_the_judge_finds_what_a_reader_did_wrong():
    """Skipped, twice, out of order, from nowhere; and books that differ."""
    books = [[n, "orders", "k", f"t{n}", n, n + 0.5] for n in (1, 2, 3, 4)]
    stored = {n: (7, f"t{n}") for n in (1, 2, 3)} | {9: (8, "t9")}
    seen = [(7, False, [1, 3, 2, 2]), (8, False, []), (7, True, [3]), (7, False, [5])]

    verdict = judge(stored, books, seen)

    assert ["t4", "t9"] == verdict.unbooked
    assert [9, 1, 2, 3] == verdict.skipped
    assert ([2], [5], [2]) == (verdict.twice, verdict.unexpected, verdict.disordered)
    assert (2, []) == (verdict.skipped_by_naive, verdict.inverted)
