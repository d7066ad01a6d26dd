"""
A receiver in a process of its own, which notes what it does in a table.

    python -m tests.pull.receiver CONNINFO SEED

The table race(lane, number, delivery, is_end) has a row when a message has come and one
when it is about to be acked, in the order of id. It ends when the queue is empty.
"""

from __future__ import annotations

import random
import sys

import psycopg

NOTE = "INSERT INTO race (lane, number, delivery, is_end) VALUES (%s, %s, %s, %s)"


def main(conninfo: str, seed: str) -> None:
    chance = random.Random(int(seed))
    with psycopg.connect(conninfo, autocommit=True) as connection:
        while connection.execute("SELECT EXISTS (SELECT FROM pgqueue_job)").fetchone()[
            0
        ]:
            messages = connection.execute(
                "SELECT receipt, deliveries, payload, lane"
                " FROM pgqueue_receive('race', %s)",
                [chance.randint(1, 4)],
            ).fetchall()
            for _, delivery, number, lane in messages:
                connection.execute(NOTE, [lane, number, delivery, False])
            for receipt, delivery, number, lane in messages:
                if chance.random() < 0.2:
                    connection.execute(NOTE, [lane, number, delivery, True])
                    connection.execute("SELECT pgqueue_nack(%s)", [receipt])
                    continue
                with connection.transaction():
                    connection.execute(NOTE, [lane, number, delivery, True])
                    connection.execute("SELECT pgqueue_ack(%s)", [receipt])


if __name__ == "__main__":
    main(*sys.argv[1:])
