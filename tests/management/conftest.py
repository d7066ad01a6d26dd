"""What the tests of `manage.py pgqueue` share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_pgqueue.management.commands.pgqueue import Command


@pytest.fixture(scope="module", autouse=True)
def _declared_once() -> Iterator[None]:
    """Keep the parser of arguments: to make it takes longer than most subcommands."""
    parsers: dict[Any, Any] = {}
    make = Command.create_parser

    def create_parser(command: Command, *names: str, **options: Any) -> Any:
        key = type(command), command._called_from_command_line, names
        if key not in parsers:
            parsers[key] = make(command, *names, **options)
        return parsers[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Command, "create_parser", create_parser)
        yield
