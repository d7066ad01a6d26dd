"""The command: python -m tests.scale. See the package's own text."""

from __future__ import annotations

import argparse
import os
import sys

import django

DATABASE = "pgqueue_scale"


def main() -> int:
    """Load, measure or drop; 0 when nothing is left to load."""
    options = read_options()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from tests.scale import command

    command.use(DATABASE)
    return command.run(options)


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.scale")
    what = parser.add_subparsers(dest="what", required=True)
    load = what.add_parser("load", help="fill the database; again, to go on")
    load.add_argument("--archived", type=int, default=10_000_000)
    load.add_argument("--days", type=int, default=14)
    load.add_argument("--waiting", type=int, default=1_000_000)
    load.add_argument("--dead", type=int, default=100_000)
    load.add_argument("--connections", type=int, default=2)
    load.add_argument("--seconds", type=float, default=1e9, help="stop after so many")
    measure = what.add_parser("measure", help="measure what is named; nothing: all")
    measure.add_argument("names", nargs="*")
    measure.add_argument("--json", action="store_true", help="one object a line")
    what.add_parser("drop", help="drop the database")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
