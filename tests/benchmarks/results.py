"""Results: what was measured on what, and the medians of it; one JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from tests.benchmarks.peer import Configuration, Peer
from tests.benchmarks.peers import PEERS

PERCENTS = (50, 95, 99)


@dataclass
class Results:
    """
    Runs, each with one turn of every peer.

    Attributes:
        setting: The machine, the server's parameters and the peers' versions.
        skipped: Peers that could not be measured, and why.
        runs: ``{"turns": {peer: figures or {"invalid": why}}}``, with time and load.
    """

    setting: dict[str, Any]
    skipped: dict[str, str]
    runs: list[dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Results:
        """Return what write() wrote."""
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        """Write one JSON document, with a line for each run."""
        path.parent.mkdir(parents=True, exist_ok=True)
        runs = ",\n".join(map(_line, self.runs))
        told = (
            f'{{"setting": {_line(self.setting)},\n'
            f'"skipped": {_line(self.skipped)},\n'
            f'"runs": [\n{runs}\n]}}\n'
        )
        path.write_text(told, encoding="utf-8")

    def invalid(self) -> list[str]:
        """Return a line for each turn that does not count."""
        return [
            f"run {place}, {PEERS[name].title}: {turn['invalid']}"
            for place, run in enumerate(self.runs, start=1)
            for name, turn in run["turns"].items()
            if "invalid" in turn
        ]

    def rows(self) -> list[Row]:
        """Return the medians, a row a configuration; peers without one are absent."""
        return [
            row
            for peer in PEERS.values()
            for row in self._rows_of(peer)
            if self.turns(peer)
        ]

    def turns(self, peer: Peer) -> list[dict[str, Any]]:
        """Return the turns of a peer that count."""
        turns = [run["turns"].get(peer.name) for run in self.runs]
        return [turn for turn in turns if turn and "invalid" not in turn]

    def _rows_of(self, peer: Peer) -> Iterator[Row]:
        turns = self.turns(peer)
        for configuration in peer.configurations:
            workers = [
                turn["workers"][configuration.name]
                for turn in turns
                if configuration.name in turn["workers"]
            ]
            if workers:
                yield Row.of(peer, configuration, turns, workers)


@dataclass(frozen=True, kw_only=True)
class Row:
    """Medians over the runs; None where a figure could not be taken."""

    peer: Peer
    configuration: Configuration
    runs: int
    enqueue: float
    bulk: float
    drain: float
    drain_two: float
    worker_cpu: float
    server_cpu: float | None
    percentiles: tuple[float, ...]  # Of PERCENTS, over the latencies of all runs.

    @classmethod
    def of(
        cls,
        peer: Peer,
        configuration: Configuration,
        turns: list[dict[str, Any]],
        workers: list[dict[str, Any]],
    ) -> Row:
        """Return the medians of what the turns of one configuration measured."""
        latencies = [value for worker in workers for value in worker["latencies"]]
        cuts = quantiles(latencies, n=100, method="inclusive")
        server = [worker["server_cpu"] for worker in workers]
        return cls(
            peer=peer,
            configuration=configuration,
            runs=len(workers),
            enqueue=median(turn["enqueue"] for turn in turns),
            bulk=median(turn["bulk"] for turn in turns),
            drain=median(worker["drain"] for worker in workers),
            drain_two=median(worker["drain_two"] for worker in workers),
            worker_cpu=median(worker["worker_cpu"] for worker in workers),
            server_cpu=None if None in server else median(server),
            percentiles=tuple(cuts[percent - 1] for percent in PERCENTS),
        )


def _line(told: Any) -> str:
    return json.dumps(told, ensure_ascii=False)


def ratio(results: Results, figure: str, above: Row, below: Row) -> float:
    """
    Return how many times *above* reaches what *below* does.

    The median of the ratios of the runs, not the ratio of the medians: both of a run
    were measured within minutes of each other.
    """
    pairs = zip(
        _by_run(results, above, figure), _by_run(results, below, figure), strict=True
    )
    return median(one / other for one, other in pairs if one and other)


def _by_run(results: Results, row: Row, figure: str) -> list[float | None]:
    values: list[float | None] = []
    for run in results.runs:
        turn = run["turns"].get(row.peer.name, {})
        if figure in ("enqueue", "bulk"):
            values.append(turn.get(figure))
            continue
        worker = turn.get("workers", {}).get(row.configuration.name, {})
        if figure == "latency":
            values.append(median(worker["latencies"]) if worker else None)
        else:
            values.append(worker.get(figure))
    return values
