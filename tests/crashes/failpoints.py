"""
Failpoints: places in the life of a job where a test can kill or stop its process.

Also notes in the ledger what no row shows: claims, settles that were refused, and what
the process has heard that somebody waits for.

Installed only in processes that tests start, around the package's own functions; the
package knows nothing of them. What a point does is told by an environment variable,
how often it does so by files that outlive the process.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from django.apps import AppConfig

from django_pgqueue.signals import settle_stale
from tests.harness import ledger

VARIABLE = "PGQUEUE_TEST_FAILPOINT"

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Failpoint:
    """What the test asked for, as it travels in the environment."""

    def __init__(
        self, point: str, *, folder: Path, action: str = "kill", times: int = 1
    ) -> None:
        self.point = point
        self.folder = folder
        self.action = action
        self.times = times

    def environment(self) -> dict[str, str]:
        """Return the variable that a worker is started with."""
        told = [self.point, str(self.folder), self.action, self.times]
        return {VARIABLE: json.dumps(told)}

    def hits(self) -> list[Path]:
        """Return a file for each time that the point was hit."""
        return sorted(self.folder.glob(f"{self.point}.*"))


def fire(point: str) -> None:
    """Kill or stop this process, if the test asked for it at this point."""
    told = os.environ.get(VARIABLE)
    if told is None:
        return
    asked, folder, action, times = json.loads(told)
    if asked != point:
        return
    for n in range(times):
        try:
            fd = os.open(Path(folder) / f"{point}.{n}", os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            continue
        os.close(fd)
        os.kill(os.getpid(), SIGNALS[action])
        return


def before(point: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function* with a point in front of it."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        fire(point)
        return function(*args, **kwargs)

    return wrapped


def after(point: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function* with a point behind it, where it returned something."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if result:
            fire(point)
        return result

    return wrapped


def _note_stale(sender: str, job_id: int, **fields: Any) -> None:
    ledger.write("stale", job_id, note=fields["kind"])


def _counted(claim: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(claim)
    def counted(*args: Any, **kwargs: Any) -> Any:
        jobs = claim(*args, **kwargs)
        ledger.write("claim", 0, note=len(jobs))
        return jobs

    return counted


def _looked(see: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(see)
    def looked(*args: Any, **kwargs: Any) -> Any:
        sight = see(*args, **kwargs)
        # A look that claims nothing by itself.
        ledger.write("claim", 0, note=0)
        return sight

    return looked


def _noted(note: Callable[..., None]) -> Callable[..., None]:
    @wraps(note)
    def noted(waited: Any, payload: str) -> None:
        note(waited, payload)
        ledger.write("waited", 0, note=payload)

    return noted


class FailpointsConfig(AppConfig):
    """Puts the points between the hops of a job's life."""

    name = "tests.crashes"
    label = "failpoints"

    def ready(self) -> None:
        """Wrap what the worker calls; children inherit it through the fork."""
        settle_stale.connect(_note_stale)
        from django_pgqueue.queues import claim, lease
        from django_pgqueue.worker.run import executor
        from django_pgqueue.worker.settle import settler
        from django_pgqueue.worker.settle.settler import Waited

        for verb in ("claim", "claim_from_floors"):
            setattr(claim, verb, _counted(getattr(claim, verb)))
        claim.see = _looked(claim.see)
        Waited.note = _noted(Waited.note)  # type: ignore[method-assign]
        if VARIABLE not in os.environ:
            return
        # Between hops 7 and 8: the claim is committed, nothing has started.
        for verb in ("claim", "claim_from_floors"):
            setattr(claim, verb, after("claimed", getattr(claim, verb)))
        # Between hops 8 and 10: the task is done, nobody knows.
        executor.attempt = after("performed", executor.attempt)
        # Around hop 11: before the statement, and after its commit.
        for kind, write in list(settler.KINDS.items()):
            settler.KINDS[kind] = after(
                f"{kind}.after", before(f"{kind}.before", write)
            )
        lease.release = after("released", lease.release)
        _put_into_ticks()


def _put_into_ticks() -> None:
    """Put points behind each statement of a tick, before its commit and after it."""
    from django_pgqueue.schedules import issue, ticks
    from django_pgqueue.worker.chores import scheduler

    ticks.advance = after("tick.advanced", ticks.advance)
    ticks.insert = after("tick.inserted", ticks.insert)
    issue.enqueue = after("tick.enqueued", issue.enqueue)
    scheduler.issue = after("tick.issued", scheduler.issue)
    scheduler.wake_for = before("tick.committed", scheduler.wake_for)
