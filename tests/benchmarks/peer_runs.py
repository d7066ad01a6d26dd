"""Runs of peers: every peer has a turn in each, on one server, beside this queue."""

from __future__ import annotations

import argparse
import datetime
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg

from tests.benchmarks import table
from tests.benchmarks.database import Database, Server, server
from tests.benchmarks.environments import (
    Environment,
    UnavailableError,
    open_environment,
)
from tests.benchmarks.machine import load, machine
from tests.benchmarks.peer import Configuration, Peer
from tests.benchmarks.peers import PEERS
from tests.benchmarks.processes import FailedError, Program, say
from tests.benchmarks.results import Results
from tests.benchmarks.turn import Sizes, Turn

SETUP_SECONDS_MAX = 120.0


def main(arguments: Sequence[str]) -> int:
    """Measure; return 1 if a turn was invalid."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks peers",
        description="Measure this queue beside others. Progress: standard error.",
    )
    add = parser.add_argument
    add("--runs", type=int, default=5, help="turns of each peer (default 5)")
    add("--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="PEER")
    add("--share", type=float, default=1.0, help="of the full number of jobs; a trial")
    add("--json", type=Path, help="write the results there, after each run")
    options = parser.parse_args(arguments)

    def keep(results: Results) -> None:
        if options.json:
            results.write(options.json)

    peers = [PEERS[name] for name in dict.fromkeys(options.peers)]
    results = measure(peers, options.runs, Sizes(share=options.share), keep=keep)
    print(table.figures(results))  # noqa: T201
    for line in results.invalid():
        say(f"INVALID: {line}")
    return 1 if results.invalid() else 0


def measure(
    peers: Sequence[Peer],
    runs: int,
    sizes: Sizes,
    configurations: Mapping[str, tuple[Configuration, ...]] | None = None,
    keep: Callable[[Results], object] = lambda results: None,
) -> Results:
    """
    Give each peer a turn in each of the runs.

    Args:
        peers: In the order of their turns.
        runs: How many.
        sizes: How large.
        configurations: By a peer's name, where not all of them are wanted.
        keep: Called after each run with what there is so far.
    """
    environments, skipped = _environments(peers)
    results = Results({}, skipped, [])
    with (
        server() as used,
        tempfile.TemporaryDirectory(prefix="pgqueue-peers-") as folder,
    ):
        results.setting = {
            "machine": machine(),
            "server": used.parameters(),
            "versions": {name: env.versions for name, env in environments.items()},
            "share": sizes.share,
        }
        ready = [
            Ready(peer, environments[peer.name], used, Path(folder))
            for peer in peers
            if peer.name in environments
        ]
        for place in range(1, runs + 1):
            run: dict[str, Any] = {
                "at": datetime.datetime.now(datetime.UTC).isoformat("T", "seconds"),
                "load": load(),
                "turns": {},
            }
            say(f"Run {place} of {runs}, load {run['load']}.")
            for peer in ready:
                wanted = (configurations or {}).get(peer.peer.name)
                turn = peer.take_turn(place, sizes, wanted)
                run["turns"][peer.peer.name] = turn
            results.runs.append(run)
            keep(results)
    return results


class Ready:
    """A peer with its environment, and a database with its tables to copy."""

    def __init__(
        self, peer: Peer, environment: Environment, used: Server, folder: Path
    ) -> None:
        self.peer = peer
        self._environment = environment
        self._server = used
        self._folder = folder
        self._template: Database | None = None

    def take_turn(
        self,
        place: int,
        sizes: Sizes,
        configurations: tuple[Configuration, ...] | None = None,
    ) -> dict[str, Any]:
        """Return figures, or why the turn does not count."""
        folder = self._folder / f"run-{place}"
        folder.mkdir(exist_ok=True)
        try:
            template = self._set_up()
            database = self._server.make(self.peer.name, template.name)
            self._server.checkpoint()
            turn = Turn(self.peer, self._environment, database, folder, sizes, say)
            try:
                return turn.measure(configurations or self.peer.configurations)
            finally:
                self._server.drop(database)
        except (FailedError, psycopg.Error) as error:
            say(f"INVALID: {self.peer.title}: {error}")
            return {"invalid": str(error)}

    def _set_up(self) -> Database:
        if self._template is None:
            made = self._server.make(f"{self.peer.name}_template")
            with Program(
                self._environment,
                "setup",
                log=self._folder / f"{self.peer.name}-setup.log",
                variables=made.environment,
            ) as program:
                if program.process.wait(SETUP_SECONDS_MAX):
                    program.check()
            self._template = made
        return self._template


def _environments(
    peers: Sequence[Peer],
) -> tuple[dict[str, Environment], dict[str, str]]:
    made: dict[str, Environment] = {}
    skipped: dict[str, str] = {}
    for peer in peers:
        say(f"{peer.title}: the environment")
        try:
            made[peer.name] = open_environment(peer)
        except UnavailableError as error:
            skipped[peer.name] = str(error)
            say(f"SKIPPED: {peer.title}: {error}")
    return made, skipped
