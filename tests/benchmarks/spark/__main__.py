"""The command: python -m tests.benchmarks.spark. See the package's own text."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from django_pgqueue.spark.jdbc.driver import DEBIANS
from django_pgqueue.spark.session import open_session
from tests.benchmarks.environments import REPOSITORY
from tests.benchmarks.machine import load, machine
from tests.benchmarks.spark import ingest, work
from tests.benchmarks.spark.processors import seconds_of
from tests.benchmarks.spark.server import Place, migrated_server

MASTER, MEMORY = "local[2]", "2g"
GROWTH = (100_000, 500_000, 1_000_000, 2_000_000, 5_000_000)
COLD_ROWS = 100_000
READERS = ("read", "pgqueue", "jdbc")


PARTS = ("read", "write", "growth", "ingest", "cold")

# What people write: Spark takes all columns of a Python source for it.
ASKED: dict[str, Callable[[Any], object]] = {
    "count": lambda frame: frame.count(),
    "group": lambda frame: frame.groupBy("task", "queue").count().collect(),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 0, or 2 if something that is needed is not there."""
    asked = _options(arguments)
    if not asked.jar.exists() and set(asked.only) != {"ingest"}:
        say(f"There is no {asked.jar}: install libpostgresql-jdbc-java, or say --jar.")
        return 2
    if asked.cold:
        print(cold(asked.cold, Place(**json.loads(sys.stdin.read())), asked.jar))  # noqa: T201
        return 0
    results: dict[str, Any] = {
        # Parts that are not measured now stay as they were.
        **(json.loads(asked.json.read_text()) if _is_part(asked) else {}),
        "at": datetime.datetime.now(datetime.UTC).isoformat("T", "seconds"),
        "machine": machine(),
        "load": load(),
        "rows": {
            "read": asked.rows,
            "write": asked.write_rows,
            "cold": COLD_ROWS,
            "ingest": asked.ingest_rows,
        },
    }
    with migrated_server() as place:
        _warm(asked, place, results)
        if "cold" in asked.only:
            results["cold"] = _cold_turns(asked, place)
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def _is_part(asked: argparse.Namespace) -> bool:
    return asked.json is not None and asked.json.exists() and asked.only != PARTS


def _warm(asked: argparse.Namespace, place: Place, results: dict[str, Any]) -> None:
    session = _session(place, asked.jar)
    pids = (_java(), os.getpid(), place.postmaster)
    results["versions"] = {
        "PostgreSQL": _version(place),
        "PySpark": session.version,
        "Java": session.sparkContext._jvm.System.getProperty("java.version"),
        "JDBC driver": _name_of(asked.jar) if asked.jar.exists() else "",
    }
    try:
        if "read" in asked.only:
            work.fill(place, asked.rows)
            for name, columns in (("wide", work.WIDE), ("narrow", work.NARROW)):
                results[f"read_{name}"] = take_turns(
                    read_sides(session, place, columns),
                    asked.turns,
                    asked.rows,
                    pids,
                    f"read_{name}",
                )
            for name, ask in ASKED.items():
                results[name] = take_turns(
                    ask_sides(session, place, ask), asked.turns, asked.rows, pids, name
                )
        if "write" in asked.only:
            results["write"] = take_turns(
                write_sides(session, place, asked.write_rows),
                asked.turns,
                asked.write_rows,
                pids,
                "write",
                before=lambda: work.empty(place),
                check=lambda: work.count(place),
            )
        if "growth" in asked.only:
            results["growth"] = {
                str(rows): _grown(session, place, rows, asked.turns, pids)
                for rows in asked.growth
            }
        if "ingest" in asked.only:
            results["ingest"] = ingest.turns(
                place, session, asked.ingest_rows, asked.turns, say
            )
    finally:
        session.stop()


def _grown(
    session: Any, place: Place, rows: int, turns: int, pids: tuple[int, ...]
) -> dict[str, Any]:
    written = take_turns(
        {"staged": lambda: work.write(session, rows)},
        turns,
        rows,
        pids,
        f"growth {rows:,}",
        before=lambda: work.empty(place),
        check=lambda: work.count(place),
    )
    work.fill(place, rows)
    sides = read_sides(session, place, work.WIDE)
    wide = take_turns(
        {name: sides[name] for name in READERS},
        turns,
        rows,
        pids,
        f"growth {rows:,}",
    )
    return {**written, **wide}


def read_sides(
    session: Any, place: Place, columns: tuple[str, ...]
) -> dict[str, Callable[[], None]]:
    return {
        "read": lambda: work.read(session, columns),
        "unmasked": lambda: work.read(session, columns, ()),
        "pgqueue": lambda: work.read_by_python(session, columns),
        "jdbc": lambda: work.read_by_jdbc(session, place, columns),
    }


def ask_sides(
    session: Any, place: Place, ask: Callable[[Any], object]
) -> dict[str, Callable[[], object]]:
    return {
        "read": lambda: ask(work.table(session)),
        "pgqueue": lambda: ask(work.table_by_python(session)),
        "jdbc": lambda: ask(work.table_by_jdbc(session, place)),
    }


def write_sides(session: Any, place: Place, rows: int) -> dict[str, Callable[[], None]]:
    chunks = work.copy_rows(rows)
    return {
        "staged": lambda: work.write(session, rows),
        "jdbc": lambda: work.write_by_jdbc(session, place, rows),
        "copy": lambda: work.copy(place, chunks),
    }


def take_turns(
    sides: Mapping[str, Callable[[], object]],
    turns: int,
    rows: int,
    pids: Sequence[int],
    title: str,
    *,
    before: Callable[[], None] = lambda: None,
    check: Callable[[], int] | None = None,
) -> dict[str, Any]:
    """
    Let each side work *turns* times, one after the other, after one unmeasured turn.

    Returns:
        By side: seconds and processor seconds of each turn, in order; and those of the
        server alone, which is the last of *pids*.
    """
    told: dict[str, Any] = {
        name: {"seconds": [], "processor": [], "server": []} for name in sides
    }
    *_, server = pids
    for turn in range(turns + 1):
        # Every other turn backwards: nobody is always the first after a pause.
        for name in list(sides)[:: -1 if turn % 2 else 1]:
            before()
            before_it = seconds_of(*pids), seconds_of(server)
            started = time.monotonic()
            sides[name]()
            seconds = time.monotonic() - started
            used, served = (
                after - before
                for after, before in zip(
                    (seconds_of(*pids), seconds_of(server)), before_it, strict=True
                )
            )
            if check is not None and check() != rows:
                raise AssertionError(f"{name} of {title}: {check():,} rows, not {rows}")
            if turn:
                told[name]["seconds"].append(round(seconds, 3))
                told[name]["processor"].append(round(used, 2))
                told[name]["server"].append(round(served, 2))
        if turn:
            say(f"{title} {turn}: {_shown(told, rows)}")
    return told


def _shown(told: dict[str, Any], rows: int) -> str:
    return ", ".join(
        f"{name} {rows / side['seconds'][-1]:,.0f} rows/s "
        f"({side['processor'][-1]:.1f} s of processors)"
        for name, side in told.items()
    )


def _cold_turns(asked: argparse.Namespace, place: Place) -> dict[str, Any]:
    work.fill(place, COLD_ROWS)
    told: dict[str, list[float]] = {name: [] for name in READERS}
    for turn in range(asked.turns):
        for name in list(told)[:: -1 if turn % 2 else 1]:
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "tests.benchmarks.spark"),
                    *("--cold", name, "--jar", str(asked.jar)),
                ],
                cwd=REPOSITORY,
                input=json.dumps(
                    {slot: getattr(place, slot) for slot in place.__slots__}
                ),
                capture_output=True,
                text=True,
                check=True,
            )
            told[name].append(float(done.stdout.split()[-1]))
        say(f"cold {turn + 1}: " + ", ".join(f"{n} {t[-1]} s" for n, t in told.items()))
    return {name: {"seconds": seconds} for name, seconds in told.items()}


def cold(side: str, place: Place, jar: Path) -> float:
    """Return the seconds of a session that reads once, from its start to its end."""
    started = time.monotonic()
    session = _session(place, jar)
    read_sides(session, place, work.WIDE)[side]()
    seconds = time.monotonic() - started
    session.stop()
    return round(seconds, 2)


def _session(place: Place, jar: Path) -> Any:
    # Spark's own Pythons find the data source of this checkout.
    toplevel = REPOSITORY / "django_pgqueue" / "spark" / "toplevel"
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (REPOSITORY, toplevel)))
    jars = {"spark.jars": str(jar)} if jar.exists() else {}
    session = open_session(
        "benchmark",
        master=MASTER,
        memory=MEMORY,
        dsn=place.dsn,
        config={"spark.ui.enabled": "false", **jars},
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def _java() -> int:
    from pyspark import SparkContext

    return int(SparkContext._gateway.proc.pid)


def _name_of(jar: Path) -> str:
    """Return the name with a version, of all that the file has."""
    names = [other.name for other in jar.parent.glob("*.jar") if other.samefile(jar)]
    return max(names, key=lambda name: sum(map(str.isdigit, name)))


def _version(place: Place) -> str:
    with place.connect() as connection:
        row = connection.execute("SHOW server_version").fetchone()
    assert row is not None
    return str(row[0])


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.spark",
        description="Read, write and ingest with Spark. Progress: standard error.",
    )
    add = parser.add_argument
    add("--rows", type=int, default=2_000_000, help="to read (default 2,000,000)")
    add("--write-rows", type=int, default=1_000_000, help="to write (1,000,000)")
    add("--ingest-rows", type=int, default=1_000_000, help="to ingest (1,000,000)")
    add("--turns", type=int, default=5, help="of each side (default 5)")
    add("--growth", type=int, nargs="+", default=GROWTH, metavar="ROWS")
    add("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    add("--jar", type=Path, default=DEBIANS, help="PostgreSQL's JDBC driver")
    add("--json", type=Path, help="write the results there")
    add("--cold", choices=READERS, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def say(text: str) -> None:
    """Tell the person who waits."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
