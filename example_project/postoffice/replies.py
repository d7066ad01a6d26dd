"""
Replies: what comes back to a mail, told by the mail server over HTTP.

A mail server tells again when our answer gets lost. The inbox of the queue knows what
it has told, by the Message-ID: noted in the transaction that stores the reply, so that
a reply is stored once, and none is noted and then lost.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from django.db import transaction

from django_pgqueue import inbox
from postoffice.drafts import Problem, Refused
from postoffice.models import ADDRESS_MAX, EmailMessage, Reply

SOURCE = "mail server"
TEXT_MAX = 100_000  # Characters.
MESSAGE_ID_MAX = 998  # Characters of a line of a mail.
FIELDS = {"message_id": MESSAGE_ID_MAX, "sender": ADDRESS_MAX, "text": TEXT_MAX}


@dataclass(frozen=True, slots=True)
class Told:
    """A reply as the mail server tells it."""

    message_id: str
    sender: str
    text: str


def read_reply(body: bytes) -> Told:
    """
    Read a reply, a JSON object.

    Raises:
        Refused: With every problem found.
    """
    try:
        posted = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused([Problem(None, None, f"This is not JSON: {error}.")]) from None
    if not isinstance(posted, dict) or posted.keys() - FIELDS.keys():
        what = f"A reply is an object with the fields {', '.join(FIELDS)}."
        raise Refused([Problem(None, None, what)])
    problems = [
        Problem(None, name, f"This must be text of 1 to {most:,} characters.")
        for name, most in FIELDS.items()
        if not _is_text(posted.get(name), most)
    ]
    if problems:
        raise Refused(problems)
    return Told(**posted)


def take(email: EmailMessage, told: Told) -> bool:
    """Store a reply to a mail; False: it was told before."""
    # Message-IDs may be longer than what the inbox takes.
    known_as = hashlib.sha256(told.message_id.encode()).hexdigest()
    with transaction.atomic():
        is_new = inbox(SOURCE, known_as)
        if is_new:
            Reply.objects.create(email=email, sender=told.sender, text=told.text)
    return is_new


def _is_text(value: object, most: int) -> bool:
    return (
        isinstance(value, str)
        and 1 <= len(value) <= most
        and "\x00" not in value
        and not any("\ud800" <= each <= "\udfff" for each in value)
    )
