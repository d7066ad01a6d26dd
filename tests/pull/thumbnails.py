"""
A worker of the queue "thumbs" in Python, on the settings of tests/worker_settings.py.

    python -m tests.pull.thumbnails

What it does is what the workers of docs/howto/clients/ do.
"""

from __future__ import annotations

import contextlib

import django


def main() -> None:
    django.setup()
    from django.db import connection, transaction

    from django_pgqueue import LeaseLost, queue

    thumbs = queue("thumbs")
    while True:
        for message in thumbs.receive(10, wait="20s"):
            with (
                contextlib.suppress(LeaseLost),
                transaction.atomic(),
                message,
                connection.cursor() as cursor,
            ):
                path = message.payload["path"]
                cursor.execute("INSERT INTO shop_thumbnail (path) VALUES (%s)", [path])


if __name__ == "__main__":
    main()
