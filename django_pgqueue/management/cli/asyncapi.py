"""pgqueue asyncapi: what topics and tasks take, as one document; what breaks it."""

from __future__ import annotations

from typing import Any

from django_pgqueue.conf import get_settings
from django_pgqueue.contract.breaks import WRITE, compare
from django_pgqueue.contract.document import project_document, text_of
from django_pgqueue.exceptions import InvalidOption
from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Output
from django_pgqueue.operators.human import shown

HELP = (
    "Print topics and tasks, with the schemas of what they take, as one AsyncAPI "
    "document; or tell which changes of code break those who go by an older one."
)


def add_arguments(parser: Any) -> None:
    """Declare what it is compared with."""
    parser.add_argument(
        "--check",
        nargs="?",
        const="",
        metavar="FILE",
        help="Print no document, and compare the one in FILE with code: status 1 if "
        "a change breaks somebody. By default the file of PGQUEUE['CONTRACT'].",
    )


def run(options: dict[str, Any], out: Output) -> int:
    """Print the document, or what breaks."""
    if options["check"] is None:
        # JSON in any case; so that two of them can be compared, a line for each word.
        out.line(text_of(project_document()))
        return EXIT_DONE
    path = options["check"] or get_settings().contract
    if path is None:
        raise InvalidOption(
            "--check needs a FILE, or PGQUEUE['CONTRACT']: the document to compare "
            "code with."
        )
    found = compare(path)
    if out.as_json:
        out.json(
            {
                "breaks": [each._asdict() for each in found.breaks],
                "is_current": found.is_current,
            }
        )
    else:
        for each in found.breaks:
            out.line(shown(each))
        if not found.breaks:
            out.line("Nothing breaks.")
        if not found.is_current:
            out.note(f"Code says more than {shown(path)}: {WRITE} > {shown(path)}")
    return EXIT_NOTHING if found.breaks else EXIT_DONE
