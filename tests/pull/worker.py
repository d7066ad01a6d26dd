"""
A worker of a pull queue in Python, on the settings of tests/worker_settings.py.

    python -m tests.pull.worker [stop]

It receives until there is nothing left; "stop" hangs before its first ack.
"""

from __future__ import annotations

import sys

import django


def main(*arguments: str) -> None:
    django.setup()
    from django.db import connection

    from django_pgqueue import LeaseLost, queue

    both = queue("both")
    while messages := both.receive(
        3, wait="2s", visibility="1s" if arguments else "60s"
    ):
        for message in messages:
            try:
                with message.atomic(), connection.cursor() as cursor:
                    number = message.payload["number"]
                    cursor.execute(
                        "INSERT INTO effect (number, by) VALUES (%s, 'Python')",
                        [number],
                    )
                    if arguments:
                        cursor.execute("SELECT pg_sleep(600)")
            except LeaseLost:
                pass  # Another receiver has done it.


if __name__ == "__main__":
    main(*sys.argv[1:])
