"""Tables: the medians, for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from tests.benchmarks.peer import Peer
from tests.benchmarks.peers import PEERS
from tests.benchmarks.results import Results, Row

HEADER = (
    "",
    "enqueue /s",
    "bulk /s",
    "drain /s",
    "two processes /s",
    "worker CPU s per 1,000",
    "server CPU s per 1,000",
    "latency p50, p95, p99 ms",
)

# From here on a figure has no decimals: more digits than it can mean.
WHOLE_FROM, DIGITS = 100, 3


def setting(results: Results) -> str:
    """Return a paragraph: the machine, the server, the runs."""
    machine, server = results.setting["machine"], results.setting["server"]
    version = server["server_version"].split()[0]
    settings = ", ".join(
        f"`{name}` {value}"
        for name, value in server.items()
        if name != "server_version"
    )
    skipped = [
        f" {PEERS[name].title} could not be measured: {why}."
        for name, why in results.skipped.items()
    ]
    return (
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory']}, "
        f"{machine['system']}, Python {machine['Python']}. PostgreSQL {version}: "
        f"{settings}. {_runs(results)}{''.join(skipped)}"
    )


def figures(results: Results) -> str:
    """Return the medians."""
    return table(HEADER, [_cells(row) for row in results.rows()])


def configurations(results: Results) -> str:
    """Return versions and settings."""
    rows = []
    for row in results.rows():
        versions = results.setting["versions"].get(row.peer.name, {})
        told = ", ".join(f"{name} {version}" for name, version in versions.items())
        jobs = f"{row.configuration.jobs:,}"
        rows.append((_name(row), row.configuration.what, jobs, told))
    return table(("", "configuration", "jobs in a drain", "versions"), rows)


def guarantees(results: Results) -> str:
    """Return what each does for a job besides running it."""
    measured: list[Peer] = [peer for peer in PEERS.values() if results.turns(peer)]
    rows = [(peer.title, peer.holds, peer.keeps) for peer in measured]
    header = ("", "for a job that runs, and when its worker dies", "a job that is done")
    return table(header, rows)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def shown(value: float | None) -> str:
    """Return a figure for people: no more digits than it can mean."""
    if value is None:
        return "-"
    if value >= WHOLE_FROM:
        return f"{round(value, DIGITS - len(str(int(value)))):,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.{DIGITS}g}"


def _runs(results: Results) -> str:
    loads = sorted({f"{run['load']:.1f}" for run in results.runs}, key=float)
    load = " to ".join([loads[0], loads[-1]] if loads[1:] else loads)
    count, share = len(results.runs), results.setting["share"]
    told = f"{count} runs" if count > 1 else "**One run only**"
    if share < 1:
        told += f", **a trial with {share:.0%} of the jobs**"
    return f"{told}; the load before was {load}."


def _cells(row: Row) -> tuple[str, ...]:
    return (
        _name(row),
        shown(row.enqueue),
        shown(row.bulk),
        shown(row.drain),
        shown(row.drain_two),
        shown(row.worker_cpu),
        shown(row.server_cpu),
        ", ".join(map(shown, row.percentiles)),
    )


def _name(row: Row) -> str:
    return f"{row.peer.title}: {row.configuration.name}"
