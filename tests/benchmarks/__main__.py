"""The command: python -m tests.benchmarks. See the package's own text."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg

from django_pgqueue.exceptions import PgQueueError
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
from tests.benchmarks.processes import FailedError, Program
from tests.benchmarks.results import MismatchError, Results
from tests.benchmarks.turn import Sizes, Turn

SETUP_SECONDS_MAX = 120.0

EXIT_INVALID, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Measure, or show what was measured.

    Returns:
        0; 1 if a turn was invalid; 2 if runs cannot be put together; 130 interrupted.
    """
    options = read_options(arguments)
    try:
        with _signals_as_interrupts():
            results = _results(options)
    except (MismatchError, PgQueueError, OSError) as error:
        say(str(error))
        return EXIT_USAGE
    except KeyboardInterrupt:
        say("Interrupted; the databases were dropped.")
        return EXIT_INTERRUPTED
    told = table.markdown(results) if options.markdown else table.text(results)
    print(told)  # noqa: T201
    for name, why in results.skipped.items():
        say(f"SKIPPED: {PEERS[name].title}: {why}")
    for line in results.invalid():
        say(f"INVALID: {line}")
    return EXIT_INVALID if results.invalid() else 0


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description="Measure this queue beside others. Progress: standard error.",
    )
    add = parser.add_argument
    add("--runs", type=int, default=5, help="turns of each peer (default 5)")
    add("--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="PEER")
    add("--share", type=float, default=1.0, help="of the full number of jobs; a trial")
    add("--json", type=Path, help="write the results there")
    add(
        "--append",
        action="store_true",
        help="to the runs in --json; the last is completed if it lacks these peers",
    )
    add("--show", type=Path, metavar="JSON", help="measure nothing, show these results")
    add("--markdown", action="store_true", help="print the tables as Markdown")
    options = parser.parse_args(arguments)
    if options.append and not options.json:
        parser.error("--append needs --json, the results to append to")
    return options


def _results(options: argparse.Namespace) -> Results:
    if options.show:
        return Results.read(options.show)
    earlier = None
    if options.append and options.json.exists():
        earlier = Results.read(options.json)
    peers = [PEERS[name] for name in dict.fromkeys(options.peers)]

    def keep(measured: Results) -> Results:
        together = measured.after(earlier) if earlier else measured
        if options.json:
            together.write(options.json)
        return together

    sizes = Sizes(share=options.share)
    return keep(measure(peers, options.runs, sizes, keep=keep))


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


@contextlib.contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """End like Ctrl+C, by way of the clean-up, when told to stop or hung up on."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say(line: str) -> None:
    """Print a line of progress."""
    with contextlib.suppress(BrokenPipeError):
        print(line, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
