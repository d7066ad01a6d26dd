"""Peer: what can be measured, and how it is configured."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

PEERS_FOLDER = Path(__file__).parent / "peers"


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One way to run a peer's worker; a row of the table."""

    name: str
    what: str  # The settings, for people.
    jobs: int  # Of a drain: some seconds of work, for two processes too.
    options: dict[str, Any] = field(default_factory=dict)  # For the peer's program.
    environment: dict[str, str] = field(default_factory=dict)  # Of its worker.
    latencies: int = 60  # Jobs whose latency is taken, one at a time.
    # Between two of them. Random, so that no timer falls into step with it: a worker
    # that only polls needs a pause as long as its interval.
    pause_seconds: tuple[float, float] = (0.03, 0.07)


@dataclass(frozen=True, kw_only=True)
class Peer:
    """
    A product, or the yardstick.

    Attributes:
        name: The folder under peers/.
        title: What people call it.
        runs_on: The project's own environment, one of its own, or Node.js.
        packages: Whose versions are told.
        configurations: Its workers, the default first.
        tables: Which hold jobs, live or finished; emptied between two measures.
        unsettled: SQL that counts the jobs that are not done with.
        keeps: What becomes of a job that succeeded.
        holds: What a worker does for a job while it runs, and if it dies.
        enqueue_jobs: How many are enqueued one by one.
        bulk_jobs: How many are enqueued at once.
    """

    name: str
    title: str
    runs_on: Literal["project", "python", "node"]
    packages: tuple[str, ...]
    configurations: tuple[Configuration, ...]
    tables: tuple[str, ...]
    unsettled: str
    keeps: str
    holds: str
    enqueue_jobs: int = 1_000
    bulk_jobs: int = 10_000

    @property
    def folder(self) -> Path:
        """Where its program and its versions are."""
        return PEERS_FOLDER / self.name
