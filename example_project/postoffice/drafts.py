"""
Drafts: read what a client posted, and say everything that is wrong with it.

Whatever the queue could only find out later (an address that no server can take, text
that PostgreSQL cannot store, a line break that would become a header of its own) is
found here, while the client still listens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from postoffice.models import ADDRESS_MAX, SUBJECT_MAX

BATCH_MAX = 1_000  # Mails in a request.
RECIPIENTS_MAX = 100  # Addresses of a mail, to, cc and bcc together.
BODY_MAX = 100_000  # Characters.
ERRORS_MAX = 100  # Told at once.

FIELDS = ("subject", "to", "cc", "bcc", "body")


@dataclass(frozen=True, slots=True)
class Draft:
    """A mail that may be accepted."""

    subject: str
    to: list[str]
    cc: list[str]
    bcc: list[str]
    body: str


@dataclass(frozen=True, slots=True)
class Problem:
    """
    One thing that is wrong.

    index: the place of the mail in the batch, from 0; None when there is no batch.
    field: "subject", "to[1]", …; None when it is not about one.
    """

    index: int | None
    field: str | None
    message: str


class Refused(Exception):
    """Nothing of the request is accepted; ``problems`` says why."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = problems


def read_drafts(body: bytes) -> list[Draft]:
    """
    Read one mail, a JSON object, or a batch, a list of them: all or nothing.

    Raises:
        Refused: With every problem found, up to ERRORS_MAX.
    """
    try:
        posted = json.loads(body, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        # UnicodeDecodeError and too long a number are ValueErrors, too.
        raise Refused([Problem(None, None, f"This is not JSON: {error}.")]) from None

    if isinstance(posted, dict):
        reader = _Reader(None, posted)
        if reader.problems:
            raise Refused(reader.problems[:ERRORS_MAX])
        return [reader.draft]
    if not isinstance(posted, list):
        what = "Post a mail (an object) or a batch of mails (a list)."
        raise Refused([Problem(None, None, what)])
    if not 1 <= len(posted) <= BATCH_MAX:
        what = f"A batch has 1 to {BATCH_MAX:,} mails, not {len(posted):,}."
        raise Refused([Problem(None, None, what)])
    readers = [_Reader(index, item) for index, item in enumerate(posted)]
    problems = [problem for reader in readers for problem in reader.problems]
    if problems:
        raise Refused(problems[:ERRORS_MAX])
    return [reader.draft for reader in readers]


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return found


class _Reader:
    """Reads one mail, and gathers what is wrong with it."""

    def __init__(self, index: int | None, posted: Any) -> None:
        self.index = index
        self.problems: list[Problem] = []
        if not isinstance(posted, dict):
            self._problem(None, "A mail is an object.")
            return
        for name in posted.keys() - set(FIELDS):
            self._problem(
                _printable(name), f"Unknown field. Known are {', '.join(FIELDS)}."
            )
        self._seen: dict[str, str] = {}  # Address in lower case -> where it stood.
        self.draft = Draft(
            subject=self._text("subject", posted, SUBJECT_MAX, lines=False),
            to=self._addresses("to", posted, required=True),
            cc=self._addresses("cc", posted),
            bcc=self._addresses("bcc", posted),
            body=self._text("body", posted, BODY_MAX, lines=True),
        )
        if len(self._seen) > RECIPIENTS_MAX:
            self._problem(
                "to",
                f"A mail has at most {RECIPIENTS_MAX} recipients in to, cc and bcc, "
                f"not {len(self._seen):,}.",
            )

    def _problem(self, field: str | None, message: str) -> None:
        self.problems.append(Problem(self.index, field, message))

    def _text(
        self, field: str, posted: dict[str, Any], length_max: int, *, lines: bool
    ) -> str:
        value = posted.get(field)
        if field not in posted:
            self._problem(field, "This field is required.")
        elif not isinstance(value, str):
            self._problem(field, "This must be text.")
        elif not value.strip():
            self._problem(field, "This must not be empty.")
        elif len(value) > length_max:
            self._problem(
                field,
                f"This has {len(value):,} characters; the most is {length_max:,}.",
            )
        elif unfit := _unfit(value, allowed="\t\n\r" if lines else ""):
            self._problem(field, f"The character {unfit} is not allowed here.")
        else:
            return value
        return ""

    def _addresses(
        self, field: str, posted: dict[str, Any], *, required: bool = False
    ) -> list[str]:
        value = posted.get(field, [])
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            self._problem(field, "This must be a list of addresses.")
            return []
        if required and not value:
            self._problem(field, "This needs at least one address.")
        for place, address in enumerate(value):
            if problem := self._wrong_with(address, f"{field}[{place}]"):
                self._problem(f"{field}[{place}]", problem)
        return value

    def _wrong_with(self, address: object, place: str) -> str | None:
        if not isinstance(address, str):
            return "An address is text."
        if len(address) > ADDRESS_MAX:
            return f"An address has at most {ADDRESS_MAX} characters."
        # Quoted local parts, such as "a b"@example.org, are legal, and mail servers
        # and mail readers disagree about them: nobody has one.
        if not address.isascii() or '"' in address:
            return "An address is ASCII without quotes; write its domain as xn--…."
        try:
            validate_email(address)
        except ValidationError:
            return "This is no e-mail address, such as ann@example.org."
        first = self._seen.setdefault(address.lower(), place)
        return None if first == place else f"This address stands in {first} already."


def _unfit(text: str, *, allowed: Iterable[str]) -> str | None:
    """Return the first character that no mail can carry, escaped; None: all fit."""
    for character in text:
        # Control characters end a header line or cannot be stored; surrogates are
        # halves of characters, which JSON can spell and UTF-8 cannot.
        is_control = character < " " or "\x7f" <= character <= "\x9f"
        if (is_control and character not in allowed) or (
            "\ud800" <= character <= "\udfff" or character in "\u2028\u2029"
        ):
            return ascii(character)
    return None


def _printable(name: str) -> str:
    return ascii(name[:50])[1:-1]
