"""Clients: post the mails over HTTP, alone and in batches, several at once."""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CLIENTS = 4
BATCH_MAX = 8  # Mails in a request.
REQUEST_SECONDS_MAX = 30


class Clients:
    """
    Threads that post the lines of a file.

    accepted: what was posted, by the id that the answer gave. Only what stands here is
    a promise of the post office.
    """

    def __init__(self, file: Path, port: int, *, seed: int = 0) -> None:
        self.accepted: dict[int, dict[str, Any]] = {}
        self.failure: Exception | None = None
        self._port = port
        self._lock = threading.Lock()
        self._batches = self._cut(file, random.Random(seed))
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._post_all) for _ in range(CLIENTS)
        ]

    def start(self) -> None:
        """Begin to post; returns at once."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End after the requests that are under way."""
        self._stopped.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    @property
    def are_done(self) -> bool:
        """Whether everything was posted, or something failed."""
        return not any(thread.is_alive() for thread in self._threads)

    def _cut(self, file: Path, draw: random.Random) -> Iterator[list[dict[str, Any]]]:
        mails = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        while mails:
            size = draw.randint(1, BATCH_MAX)
            yield mails[:size]
            del mails[:size]

    def _next(self) -> list[dict[str, Any]] | None:
        with self._lock:
            return None if self._stopped.is_set() else next(self._batches, None)

    def _post_all(self) -> None:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self._port, timeout=REQUEST_SECONDS_MAX
        )
        try:
            while mails := self._next():
                ids = self._post(connection, mails)
                with self._lock:
                    self.accepted.update(zip(ids, mails, strict=True))
        except Exception as error:
            self.failure = error
            self._stopped.set()
        finally:
            connection.close()

    def _post(
        self, connection: http.client.HTTPConnection, mails: list[dict[str, Any]]
    ) -> list[int]:
        posted = mails[0] if len(mails) == 1 else mails
        connection.request(
            "POST",
            "/messages/",
            body=json.dumps(posted),
            headers={"Content-Type": "application/json"},
        )
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != http.client.ACCEPTED:
            raise RuntimeError(f"POST /messages/ answered {answer.status}: {body!r}")
        ids: list[int] = json.loads(body)["ids"]
        return ids
