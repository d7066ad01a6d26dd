"""
Publishers: processes that publish in transactions of every shape, and keep books.

``python -m tests.log.soak.publishers`` forks them, and prints their books.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg

from django_pgqueue.log.publish import publish, publish_one
from django_pgqueue.postgres.bulk import Items

KEYS = 12

# So many of them prepare transactions: a server has room for a few.
PREPARING = 3

# A transaction takes some milliseconds, and now and then this long.
PAUSE_SECONDS_MAX = 0.015
SLOW_SHARE = 0.03

ISOLATIONS = ("READ COMMITTED", "READ COMMITTED", "REPEATABLE READ")
ENDINGS = ("COMMIT",) * 15 + ("ROLLBACK",) * 2 + ("PREPARE",) * 3

PUBLISH = "SELECT pgqueue_publish(%s, %s::jsonb, %s)"
PUBLISH_TWICE = "SELECT soak_publish_twice(%s, %s::jsonb, %s::jsonb, %s)"

# Publishes, takes that back as PL/pgSQL does, and publishes again.
INSTALL = """
CREATE FUNCTION soak_publish_twice(name text, undone jsonb, kept jsonb, key text)
RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        PERFORM pgqueue_publish(name, undone, key);
        PERFORM pg_sleep(0.001);
        RAISE EXCEPTION 'take it back';
    EXCEPTION WHEN raise_exception THEN
        NULL;
    END;
    RETURN pgqueue_publish(name, kept, key);
END $$
"""


class Publisher:
    """One process: publishes its share, by its part of the seed."""

    def __init__(self, number: int, told: dict[str, Any]) -> None:
        self._number = number
        self._share = told["messages"] // told["publishers"]
        self._topics = told["topics"]
        self._slow_seconds = told["slow_seconds"]
        self._random = random.Random(f"{told['seed']}.{number}")
        self._connection = psycopg.connect(told["url"], autocommit=True)
        self._cursor = self._connection.cursor()
        (room,) = self._one("SELECT current_setting('max_prepared_transactions')::int")
        can_prepare = told["prepares"] and room and number < PREPARING
        self._endings = ENDINGS if can_prepare else ENDINGS[:-3]
        # One of all databases of the server.
        self._prepared = f"'{self._connection.info.dbname}.{number}'"
        self._texts = 0
        # What was acknowledged: [id, topic, key, text, begun, committed], and one of
        # the transaction that is open.
        self.book: list[list[Any]] = []
        self._open: list[list[Any]] = []

    def run(self) -> None:
        """Publish until the share is in the log."""
        while len(self.book) < self._share:
            self._transact()

    def close(self) -> None:
        """Close its connection."""
        self._connection.close()

    def _transact(self) -> None:
        draw = self._random
        self._begin()
        for _ in range(draw.randint(1, 4)):
            self._step(draw.choice(self._topics))
            self._pause()
        self._end(draw.choice(self._endings))

    def _begin(self) -> None:
        self._open = []
        isolation = self._random.choice(ISOLATIONS)
        self._cursor.execute(f"BEGIN ISOLATION LEVEL {isolation}")

    def _step(self, topic: str) -> None:
        self._random.choice(self._steps)(self, topic)

    def _end(self, ending: str) -> None:
        if ending == "PREPARE":
            self._cursor.execute(f"PREPARE TRANSACTION {self._prepared}")
            self._pause()
            ending = self._random.choice(("COMMIT", "COMMIT", "ROLLBACK"))
            self._cursor.execute(f"{ending} PREPARED {self._prepared}")
        else:
            self._cursor.execute(ending)
        if ending == "COMMIT":
            now = time.monotonic()
            self.book.extend([*entry, now] for entry in self._open)

    def _pause(self) -> None:
        draw = self._random
        is_slow = draw.random() < SLOW_SHARE
        time.sleep(
            draw.random() * (self._slow_seconds if is_slow else PAUSE_SECONDS_MAX)
        )

    # Each step notes what is in the log once the transaction commits.

    def _single(self, topic: str) -> None:
        self._open += self._published(topic, 1)

    def _bulk(self, topic: str) -> None:
        self._open += self._published(topic, self._random.randint(2, 25))

    def _in_sql(self, topic: str) -> None:
        key, text, begun = self._key(), self._text(), time.monotonic()
        (message_id,) = self._one(PUBLISH, topic, json.dumps(text), key)
        self._open.append([message_id, topic, key, text, begun])

    def _exception(self, topic: str) -> None:
        key, begun = self._key(), time.monotonic()
        undone, kept = self._text(), self._text()
        values = (topic, json.dumps(undone), json.dumps(kept), key)
        (message_id,) = self._one(PUBLISH_TWICE, *values)
        self._open.append([message_id, topic, key, kept, begun])

    def _released(self, topic: str) -> None:
        self._cursor.execute("SAVEPOINT s")
        self._single(topic)
        self._cursor.execute("RELEASE s")

    def _undone(self, topic: str) -> None:
        self._cursor.execute("SAVEPOINT s")
        self._published(topic, 3)
        self._pause()
        self._cursor.execute("ROLLBACK TO s")
        if self._random.random() < 0.5:
            self._single(topic)

    _steps: tuple[Callable[[Publisher, str], None], ...] = (
        _single,
        _bulk,
        _in_sql,
        _exception,
        _released,
        _undone,
    )

    def _published(self, topic: str, count: int) -> list[list[Any]]:
        named = [(self._key(), self._text()) for _ in range(count)]
        items = [
            Items(json.dumps([f"{topic}.soaked", key, text, {}]), 1)
            for key, text in named
        ]
        begun = time.monotonic()
        if count == 1 and self._random.random() < 0.5:
            ((key, text),) = named
            name, payload = f"{topic}.soaked", json.dumps(text)
            ids = publish_one(self._cursor, name, key, payload, "{}").ids
        else:
            ids = publish(self._cursor, topic, items).ids
        return [
            [message_id, topic, key, text, begun]
            for message_id, (key, text) in zip(ids, named, strict=True)
        ]

    def _key(self) -> str | None:
        number = self._random.randrange(KEYS + 1)
        return f"k{number}" if number else None

    def _text(self) -> str:
        self._texts += 1
        return f"{self._number}.{self._texts}"

    def _one(self, statement: str, *values: Any) -> tuple[Any, ...]:
        row = self._cursor.execute(statement, values).fetchone()
        assert row is not None
        return row


def publish_share(number: int, told: dict[str, Any], out: int) -> None:
    """Be one of the processes, and write its book to the descriptor."""
    with closing(Publisher(number, told)) as publisher:
        publisher.run()
    with os.fdopen(out, "w") as pipe:
        json.dump(publisher.book, pipe)


def main(told: dict[str, Any]) -> None:
    """Fork the publishers, before there is a connection, and print their books."""
    living = []
    for number in range(told["publishers"]):
        ours, theirs = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(ours)
            status = 1
            try:
                publish_share(number, told, theirs)
                status = 0
            finally:
                sys.stderr.flush()
                os._exit(status)
        os.close(theirs)
        living.append((pid, ours))
    with ThreadPoolExecutor(len(living)) as readers:
        books = list(readers.map(_read, [ours for _, ours in living]))
    for pid, _ in living:
        _, status = os.waitpid(pid, 0)
        if status:
            sys.exit(f"a publisher ended with status {status}")
    json.dump([json.loads(book) for book in books], sys.stdout)


def _read(descriptor: int) -> str:
    with os.fdopen(descriptor) as pipe:
        return pipe.read()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
