"""
Clients: processes that enqueue jobs in transactions of their own, and keep books.

Every transaction is noted before it starts, and noted again when its client knows what
became of it: "ack" once COMMIT has returned, "fail" when COMMIT was never sent or the
client rolled back, "unknown" when an error came out of COMMIT. What was noted and not
answered, since its client was killed, is unknown too.

``python -m tests.faults.clients`` is a parent without connections that waits for a line
on its standard input and then forks a client for each number. When a client dies, it
forks another one, which continues after the last operation.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django

# How long to wait for a database that is away before the next try.
AGAIN_SECONDS = 0.2

OPERATION = "INSERT INTO faults_operation (key) VALUES (%s)"


class RolledBack(Exception):
    """Raised by a client that planned to roll back."""


class Client:
    """One client: goes through its plan, from an operation on."""

    def __init__(self, number: int, told: dict[str, Any]) -> None:
        from tests.faults import instrument, rows

        instrument.name_connections()
        run = rows.Run.of(told["row"], seed=told["seed"], share=told["share"])
        self._number = number
        self._operations = list(run.operations(number))
        self._started_at = told["started_at"]
        self._until = told["started_at"] + told["seconds_max"]
        self._deaths = told["deaths"]
        self._noted = Path(os.environ["PGQUEUE_FAULTS_FOLDER"]) / f"client.{number}"

    def run(self) -> None:
        """Enqueue until everything is, or time is up."""
        for n, operation in self._left():
            late = self._started_at + operation.at - time.monotonic()
            if late > 0:
                time.sleep(late)
            # Who goes on after this client's death does not repeat what it began.
            self._noted.write_text(str(n + 1))
            attempt = 0
            while time.monotonic() < self._until:
                again = f"{operation.key}r{attempt}" if attempt else operation.key
                if self._enqueue(operation, again):
                    break
                attempt += 1
                time.sleep(AGAIN_SECONDS)
        self._go_on()

    def _go_on(self) -> None:
        """Enqueue the like again until each planned death was died, or time is up."""
        from tests.faults import instrument

        folder = self._noted.parent
        more = (
            (operation, f"{operation.key}m{turn}")
            for turn in itertools.count()
            for operation in self._operations
        )
        while instrument.died(folder) < self._deaths and time.monotonic() < self._until:
            self._enqueue(*next(more))
            time.sleep(AGAIN_SECONDS)

    def _left(self) -> Iterator[tuple[int, Any]]:
        done = int(self._noted.read_text()) if self._noted.exists() else 0
        return iter(list(enumerate(self._operations))[done:])

    def _enqueue(self, operation: Any, key: str) -> bool:
        """Try one transaction; False: it failed and may be tried anew."""
        from django.db import Error, connection

        from tests.faults import ledger

        ledger.write(
            "clients",
            "attempt",
            sync=True,
            key=key,
            size=len(operation.jobs),
            ending=operation.ending,
        )
        self._is_committing = False
        try:
            self._transact(operation, key)
        except RolledBack:
            ledger.write("clients", "fail", sync=True, key=key, planned=True)
        except Error as error:
            known = "unknown" if self._is_committing else "fail"
            text = f"{type(error).__name__}: {error}"[:200]
            ledger.write("clients", known, sync=True, key=key, text=text)
            connection.close()
            return self._is_committing
        else:
            if operation.ending == "kill_after":
                die(key)
            ledger.write("clients", "ack", sync=True, key=key)
        return True

    def _transact(self, operation: Any, key: str) -> None:
        from django.db import connection, transaction

        with transaction.atomic(durable=True):
            with connection.cursor() as cursor:
                cursor.execute(OPERATION, [key])
            if operation.ending == "savepoint":
                with contextlib.suppress(RolledBack), transaction.atomic():
                    # One more job, which nobody must ever see.
                    self._store([operation.jobs[0]], f"{key}.undone")
                    raise RolledBack
            self._store(operation.jobs, key)
            time.sleep(operation.open_seconds)
            if operation.ending == "rollback":
                raise RolledBack
            if operation.ending == "kill_before":
                die(key)
            self._tell_proxy(operation.ending)
            self._is_committing = True

    def _store(self, jobs: Any, key: str) -> None:
        """Enqueue as a user would: one by delay(), many by bulk(); sagas each."""
        from tests.faults import saga_tasks, workload

        named = [
            (task, {**kwargs, "key": f"{key}.{n}"})
            for n, (task, kwargs) in enumerate(jobs)
        ]
        by_task: dict[str, list[dict[str, Any]]] = {}
        for task, kwargs in named:
            by_task.setdefault(task, []).append(kwargs)
        for saga in by_task.pop("order", ()):
            name = saga.pop("key")
            saga_tasks.order.start(key=name, saga=name, **saga)
        for name, items in by_task.items():
            task = getattr(workload, name)
            if len(items) == 1:
                task.delay(**items[0])
            else:
                task.bulk(items)

    def _tell_proxy(self, ending: str) -> None:
        from django.db import connection

        marks = {"cut": "cut the next COMMIT", "drop": "drop the next COMMIT"}
        if ending in marks:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT 1 /* {marks[ending]} */")


def die(key: str) -> None:
    """Be killed, and note it as the fault that it is."""
    from tests.faults import ledger

    ledger.write("faults", "fault", kind="kill_client", what=key, pids=[os.getpid()])
    os.kill(os.getpid(), signal.SIGKILL)


def main(told: dict[str, Any]) -> None:
    """Fork the clients, and fork again for each that dies, until all are done."""
    django.setup()
    from tests.faults import rows, saga_tasks, workload  # noqa: F401  # Before any fork.

    if not sys.stdin.readline():
        sys.exit("the run ended before its workers were ready")
    # The fault phase begins now, and the run reads when from the file.
    told["started_at"] = time.monotonic()
    until = told["started_at"] + told["seconds_max"]
    go = Path(os.environ["PGQUEUE_FAULTS_FOLDER"]) / "clients.go"
    go.with_suffix(".new").write_text(str(told["started_at"]))
    go.with_suffix(".new").rename(go)
    living: dict[int, int] = {}
    for number in range(told["clients"]):
        living[_fork(number, told)] = number
    while living:
        pid, status = os.wait()
        number = living.pop(pid)
        if os.WIFSIGNALED(status) and time.monotonic() < until:
            living[_fork(number, told)] = number
        elif status:
            sys.exit(f"client {number} ended with status {status}")


def _fork(number: int, told: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        Client(number, told).run()
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
