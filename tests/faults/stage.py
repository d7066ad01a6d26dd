"""Stage: the server, the workers and the clients of one run, and who is who."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from tests.faults import instrument, ledger
from tests.faults.build import FUNCTIONS
from tests.faults.fleet import Fleet, Worker
from tests.faults.rows import CLOCK_WRONG_SECONDS, SETTINGS, ZONE_WRONG, Run
from tests.faults.schedules import Step
from tests.faults.server import Server, environment
from tests.harness.proxy import Proxy
from tests.harness.system import wrong_clock
from tests.harness.waiting import wait_for

CLIENTS_START_SECONDS_MAX = 60.0
CLIENTS_END_SECONDS = 60.0

# This process standing still for so long is no fault of the package's.
STALL_SECONDS = 1.0
STALL_TICK_SECONDS = 0.1

NAME_BYTES_MAX = 63

OWN_NAME = re.compile(r"pgqueue \w+ (?P<worker>\S+)|faults (?P<pid>\d+)")


class Stage:
    """Everything that a run has; ends all of it when left."""

    def __init__(self, run: Run, *, build: Path, folder: Path, template: Path) -> None:
        self.run = run
        self.build = build
        self.folder = folder
        os.environ[ledger.FOLDER] = str(folder)
        self.server = Server(template)
        if (build / FUNCTIONS).exists():
            with self.server.connect() as connection:
                connection.execute((build / FUNCTIONS).read_text())
        self.fleet = Fleet()
        self.proxies: list[Proxy] = []
        self.clients: subprocess.Popen[bytes] | None = None
        self.measures: dict[str, Any] = {
            "orphan_seconds": [],
            "back_seconds": [],
            "lines_per_second": [],
            "cpu_while_down": [],
            "points": {
                point: run.deaths(count) for point, count in run.row.points.items()
            },
            "endings": run.endings(),
        }
        self.watchers: list[threading.Thread] = []
        self.paused: set[int] = set()
        self._ids = itertools.count(1)
        self._is_over = threading.Event()
        self.watch(self._note_stalls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self._is_over.set()
        if self.clients is not None and self.clients.poll() is None:
            self.clients.kill()
            self.clients.wait()
        self.fleet.destroy()
        for proxy in self.proxies:
            proxy.__exit__()
        self.server.remove()

    def watch(self, function: Callable[[], None]) -> None:
        """Run something beside the faults; it must end by itself."""
        thread = threading.Thread(target=function, daemon=True)
        thread.start()
        self.watchers.append(thread)

    @property
    def is_over(self) -> bool:
        """Whether watchers should end."""
        return self._is_over.is_set()

    # Processes -----------------------------------------------------------------------

    def start_worker(self, place: int | None = None) -> Worker:
        """Start one worker, in the place of another one or a new place; do not wait."""
        row, number = self.run.row, len(self.fleet.workers)
        place = number if place is None else place
        database = self.server.database
        if row.through_proxy:
            database = {**database, **self._new_proxy().database}
        worker = Worker(
            self.folder / f"worker-{number}.log",
            build=self.build,
            environment=self.environment(
                database,
                dict(self.measures["points"]),
                wrong=row.wrongs[place] if place < len(row.wrongs) else "",
            ),
            place=place,
            processes=row.processes,
            threads=row.threads,
        )
        self.fleet.workers.append(worker)
        return worker

    def start_clients(self) -> None:
        """Start the clients, which wait for let_clients_begin()."""
        run = self.run
        database = self.server.database
        if run.row.clients_through_proxy:
            database = {**database, **self._new_proxy().database}
        told = {
            "row": run.name,
            "seed": run.seed,
            "share": run.share,
            "clients": run.row.load.clients,
            # Schedules go on by themselves.
            "deaths": 0 if run.row.schedules else self.deaths_left(),
            "seconds_max": run.seconds + CLIENTS_END_SECONDS,
        }
        with (self.folder / "clients.log").open("wb") as output:
            self.clients = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.clients", json.dumps(told)],
                cwd=self.build,
                env=self.environment(database, {}),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def let_clients_begin(self) -> float:
        """Tell the clients to begin; return the monotonic time at which they did."""
        clients, go = self.clients, self.folder / "clients.go"
        assert clients is not None
        assert clients.stdin is not None
        with clients.stdin as stdin:
            stdin.write(b"go\n")
        wait_for(
            lambda: go.exists() or clients.poll() is not None,
            CLIENTS_START_SECONDS_MAX,
            "the clients have started",
        )
        return float(go.read_text())

    def deaths_left(self) -> int:
        """Return how many of the planned deaths are still to be died."""
        wanted = sum(self.measures["points"].values())
        return int(wanted) - instrument.died(self.folder)

    def wait_for_clients(self) -> None:
        """Return when every client has enqueued what it was to."""
        assert self.clients is not None
        status = self.clients.wait(2 * CLIENTS_END_SECONDS)
        text = (self.folder / "clients.log").read_text(errors="replace")
        assert status == 0, f"the clients ended with {status}:\n{text[-2000:]}"

    def environment(
        self, database: dict[str, Any], points: dict[str, int], wrong: str = ""
    ) -> dict[str, str]:
        """Return the environment of a process of this run."""
        row = self.run.row
        told: dict[str, Any] = {
            "databases": {"default": database},
            "pgqueue": {**SETTINGS, **row.settings},
            "points": points,
            "seed": f"{self.run.name}:{self.run.seed}",
        }
        if row.schedules:
            told["modules"] = [row.schedules]
            told["all_schedule"] = row.all_schedule
        more: dict[str, str] = {}
        if wrong == "wrong zone":
            told["time_zone"] = more["TZ"] = ZONE_WRONG
        elif wrong:
            seconds = {"fast clock": 1, "slow clock": -1}[wrong] * CLOCK_WRONG_SECONDS
            more = wrong_clock(self.folder, seconds)
        return {**environment(self.build, self.folder, told), **more}

    def _new_proxy(self) -> Proxy:
        proxy = Proxy(server=self.server.address)
        proxy.__enter__()
        self.proxies.append(proxy)
        return proxy

    # Books ---------------------------------------------------------------------------

    def note(self, kind: str, pids: list[int] | None, what: str = "") -> None:
        """Note a fault of a moment; pids None: whoever is there."""
        ledger.write("faults", "fault", kind=kind, what=what, pids=pids)

    def note_lasting(
        self, kind: str, pids: list[int] | None, what: str = ""
    ) -> Callable[[], None]:
        """Note a fault that begins; return what notes its end."""
        number = next(self._ids)
        ledger.write("faults", "fault", kind=kind, what=what, pids=pids, id=number)
        return lambda: ledger.write("faults", "healed", id=number)

    def pids_of(self, application: str) -> list[int] | None:
        """Return the process that opened a connection of this name; None: unknown."""
        found = OWN_NAME.match(application)
        if found is None:
            return None
        if found["pid"]:
            return [int(found["pid"])]
        pids = [
            pid
            for name, pid in self.pids_by_name().items()
            # PostgreSQL cuts names that are too long.
            if name.startswith(found["worker"])
        ]
        return pids or None

    def pids_by_name(self) -> dict[str, int]:
        """Return the process of each worker that ever was, by the worker's name."""
        path = self.folder / "workers.ledger"
        if not path.exists():
            return {}
        return {
            line["name"]: line["pid"] for line in ledger.read(self.folder, "workers")
        }

    def issued_by(self, steps: Sequence[Step]) -> dict[str, int]:
        """Return how many ticks were issued by workers with which wrong clock."""
        found: Counter[str] = Counter()
        wrongs = self.run.row.wrongs
        for worker in self.fleet.workers:
            wrong = wrongs[worker.place] if worker.place < len(wrongs) else ""
            # PostgreSQL cuts names that are too long.
            names = tuple(
                f"pgqueue scheduler {name}"[:NAME_BYTES_MAX] for name in worker.names()
            )
            found[wrong or "right"] += sum(step.application in names for step in steps)
        return dict(found)

    def _note_stalls(self) -> None:
        """When this process stands still, the workers may have, too."""
        before = time.monotonic()
        while not self._is_over.wait(STALL_TICK_SECONDS):
            now = time.monotonic()
            if now - before > STALL_SECONDS:
                ledger.write(
                    "faults", "fault", kind="stall", pids=None, seconds=now - before
                )
            before = now
