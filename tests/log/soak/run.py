"""Run: one soak, in a scratch database that is a copy of the test database."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psycopg
from psycopg import sql

from django_pgqueue.postgres.connect import connect
from tests.harness import seeds
from tests.harness.databases import wait_until_left
from tests.log.soak.broken import Change, apply
from tests.log.soak.publishers import INSTALL
from tests.log.soak.readers import Reader
from tests.log.soak.straggler import Straggler
from tests.log.soak.verdict import Verdict, judge

REPOSITORY = Path(__file__).resolve().parents[3]

TOPICS = ("orders", "mail", "clicks")
BATCHES = (5, 200)
BATCH_OF_NAIVE = 50

MAKE_TOPICS = """
INSERT INTO pgqueue_topic (name) SELECT unnest(%s::text[]) RETURNING id
"""
# The next id is the one after it.
START = "SELECT setval('pgqueue_message_id_seq', %s)"
STORED = "SELECT id, topic_id, payload #>> '{}' FROM pgqueue_message"


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """What one run is like."""

    messages: int
    seed: int = seeds.seed(seeds.FAULTS)
    publishers: int = 8
    topics: tuple[str, ...] = TOPICS
    # Whether some transactions are prepared, where the server has room for them.
    prepares: bool = True
    # The longest pause of a transaction that is slow.
    slow_seconds: float = 0.2
    # The highest id before the first one; 0: as in a new database.
    start: int = 0
    change: Change | None = None


@contextmanager
def copied(url: str, template: str, name: str) -> Iterator[str]:
    """Make a database as a copy of another, to which nobody is connected; its URL."""
    named = sql.Identifier(name)
    with psycopg.connect(url, dbname="postgres", autocommit=True) as connection:
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(named)
        connection.execute(drop)
        wait_until_left(connection.cursor(), template)
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                named, sql.Identifier(template)
            )
        )
        try:
            yield psycopg.conninfo.make_conninfo(url, dbname=name)
        finally:
            connection.execute(drop)


def run(soak: Soak, url: str) -> Verdict:
    """Publish and read in the database of *url*, and judge."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.cursor()
        topics = _prepare(cursor, soak)
        readers = [
            Reader(url, topic_id, soak.start, batch=batch, is_naive=is_naive)
            for topic_id in topics
            for batch, is_naive in [
                *((batch, False) for batch in BATCHES),
                (BATCH_OF_NAIVE, True),
            ]
        ]
        for reader in readers:
            reader.start()
        naive = [reader for reader in readers if reader.is_naive]
        books = _published(soak, url, naive)
        for reader in readers:
            reader.finish()
        stored = {row[0]: row[1:] for row in cursor.execute(STORED)}
        return judge(
            stored,
            books,
            [(reader.topic_id, reader.is_naive, reader.seen) for reader in readers],
        )


def _prepare(cursor: Any, soak: Soak) -> list[int]:
    cursor.execute(INSTALL)
    cursor.execute(MAKE_TOPICS, [list(soak.topics)])
    topics = [row[0] for row in cursor]
    if soak.change is not None:
        apply(cursor, soak.change)
    if soak.start:
        cursor.execute(START, [soak.start])
    return topics


def _published(soak: Soak, url: str, naive: Sequence[Reader]) -> list[Any]:
    """Let the publishers publish, and return all entries of their books."""
    told = _told(soak, url)
    with (
        closing(Straggler(soak.publishers, told, naive)) as straggler,
        tempfile.TemporaryFile("w+") as file,
    ):
        straggler.begin()
        publishing = start_publishers(soak, url, file)
        straggler.commit(lambda: publishing.poll() is not None)
        while publishing.poll() is None:
            straggler.begin()
            straggler.commit(lambda: publishing.poll() is not None)
        assert publishing.wait() == 0
        file.seek(0)
        books = [*json.load(file), straggler.book]
        return [entry for book in books for entry in book]


def start_publishers(soak: Soak, url: str, books: IO[str]) -> subprocess.Popen[str]:
    """Start the process that forks them; it writes their books at the end."""
    return subprocess.Popen(
        [
            sys.executable,
            *("-m", "tests.log.soak.publishers", json.dumps(_told(soak, url))),
        ],
        cwd=REPOSITORY,
        stdout=books,
        text=True,
    )


def _told(soak: Soak, url: str) -> dict[str, Any]:
    return {
        "url": url,
        "messages": soak.messages,
        "publishers": soak.publishers,
        "seed": soak.seed,
        "slow_seconds": soak.slow_seconds,
        "topics": soak.topics,
        "prepares": soak.prepares,
    }


def url_of(alias: str) -> str:
    """Return where an alias leads, for psycopg alone."""
    with connect(alias, name="tests: soak") as connection:
        info = connection.info
        password = info.password or None
        return psycopg.conninfo.make_conninfo(info.dsn, password=password)
