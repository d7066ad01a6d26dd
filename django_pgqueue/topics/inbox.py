"""
Inbox: messages from outside, such as webhooks, each processed once.

    with transaction.atomic():
        if inbox("stripe", event["id"]):
            Payment.objects.filter(...).update(...)

It is noted in the transaction of its effects: both commit, or neither does.
"""

from __future__ import annotations

from uuid import UUID

from django.db import connections
from django.db.transaction import TransactionManagementError

from django_pgqueue.bounds import EXTERNAL_ID_CHARACTERS_MAX, SOURCE_CHARACTERS_MAX
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import InvalidArgument, WrongDatabase, shown
from django_pgqueue.queues import inbox as storage
from django_pgqueue.tasks.database import has_transaction, open_alias, twin
from django_pgqueue.tasks.errors import way_out


def inbox(source: str, external_id: str | int | UUID) -> bool:
    """
    Return whether a message from outside is new, and note it: one query.

        with transaction.atomic():
            if inbox("stripe", event["id"]):
                ...  # Once, however often it is delivered.

    In the caller's transaction: what rolls back has not come in. Where another
    transaction has noted the same message and is still open, this waits for its end:
    after a commit it is known, after a rollback it is new. What is noted stays for
    PGQUEUE["RETENTION"]["inbox"].

    Args:
        source: Who sends: 1 to 63 characters.
        external_id: What that one calls the message: a text of 1 to 512 characters, an
            int or a UUID.

    Raises:
        InvalidArgument: The source or the id is none.
        TransactionManagementError: No transaction is open: the message would be noted,
            whatever becomes of its effects.
        WrongDatabase: A transaction is open on another alias than the queue's.
    """
    text = _checked("source", source, SOURCE_CHARACTERS_MAX)
    if isinstance(external_id, (int, UUID)) and not isinstance(external_id, bool):
        external_id = str(external_id)
    known_as = _checked("external_id", external_id, EXTERNAL_ID_CHARACTERS_MAX)
    alias = get_settings().database
    with way_out("inbox()", "ainbox(…)"):
        if (other := open_alias(besides=alias)) is not None:
            raise WrongDatabase(
                task="inbox()",
                open_alias=other,
                queue_alias=alias,
                is_message=True,
                later="Write its effects where it is noted",
            )
        connection = connections[alias]
        if not has_transaction(connection):
            raise TransactionManagementError(
                f"inbox({text!r}, …) was called outside of a transaction: the message "
                f"would be noted, whatever becomes of its effects. Call it, and do "
                f"what the message leads to, in transaction.atomic(using={alias!r})."
            )
        with connection.cursor() as cursor:
            return storage.note(cursor, text, known_as)


ainbox = twin(inbox)


def _checked(path: str, value: object, characters_max: int) -> str:
    """Return a text that a column can hold; raise InvalidArgument."""
    if not isinstance(value, str) or not 1 <= len(value) <= characters_max:
        problem = (
            f"is {shown(value)}; it must be a text of 1 to {characters_max} characters"
        )
        if path == "external_id":
            problem += ", an int or a UUID. Of a longer one, give a hash"
        raise InvalidArgument(task="inbox()", path=path, problem=f"{problem}.")
    if "\x00" in value or any("\ud800" <= each <= "\udfff" for each in value):
        problem = (
            f"is {shown(value)}: it holds a NUL character or a lone surrogate, which "
            f"PostgreSQL cannot store."
        )
        raise InvalidArgument(task="inbox()", path=path, problem=problem)
    return value
