"""
E-mail: a backend of Django's that stores each mail as a job, for workers to send.

The caller's transaction decides about a mail as about its data: password resets, error
mails to ADMINS and whatever else calls send_mail() leave when it commits, or never.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import django
import django.db
from django.core.exceptions import SynchronousOnlyOperation
from django.core.mail.backends.base import BaseEmailBackend
from django.db import transaction

from django_pgqueue.backends import mail
from django_pgqueue.backends.mail import check_route
from django_pgqueue.backends.mail_connections import deliver_mail, store_mails
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import InvalidOption, PgQueueError, WrongDatabase
from django_pgqueue.tasks.errors import name_way_out

if TYPE_CHECKING:
    from django.core.mail import EmailMessage

logger = logging.getLogger("django_pgqueue")


class EmailBackend(BaseEmailBackend):
    """
    Stores mails as jobs, in the caller's transaction; a worker sends them.

        EMAIL_BACKEND = "django_pgqueue.backends.email.EmailBackend"

    PGQUEUE['EMAIL'] says through which backend they leave, and in which queue they
    wait until then.

    Args:
        fail_silently: What keeps a mail from being stored is logged, and not raised.
            A wrong header is raised in any case, as by Django's own backend.
        username: Refused, as is a password: it would stand in the job.
        kwargs: What Django passes to every backend.

    Raises:
        InvalidOption: A name or a password was given.
    """

    # How the route of mails knows that it would lead into the queue again.
    stores_mail = True

    def __init__(
        self,
        fail_silently: bool = False,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> None:
        if username is not None or password is not None:
            raise InvalidOption(
                f"auth_user={username!r}: a mail is sent later, by a worker, and its "
                f"job keeps no password. Give both to the backend that "
                f"PGQUEUE['EMAIL']['through'] names, in EMAIL_HOST_USER or MAILERS."
            )
        # From 6.1 on it knows no such option, and refuses what it does not know.
        own: dict[str, Any] = (
            {} if django.VERSION >= (6, 1) else {"fail_silently": fail_silently}
        )
        super().__init__(**own, **kwargs)
        self.fail_silently = fail_silently

    def send_messages(self, email_messages: Iterable[EmailMessage]) -> int:
        """
        Store a job for each message that has recipients: all or none, one INSERT.

        Returns:
            How many were stored.

        Raises:
            InvalidArgument: A message has an attribute that cannot be stored.
            PayloadTooLarge: A message exceeds PGQUEUE['PAYLOAD_BYTES_MAX'].
            QueueFull: The queue holds as many jobs as PGQUEUE['QUEUES'] says.
            SettingsError: Mails would not leave the queue.
            SynchronousOnlyOperation: Called in an event loop.
            ValueError: A header has a line break.
            WrongDatabase: A transaction is open on another alias than the queue's.
        """
        messages = [each for each in email_messages if each.recipients()]
        try:
            check_route(get_settings().email.through)
            written = [mail.write(message) for message in messages]
            with self._savepoint():
                store_mails(written)
        except (PgQueueError, SynchronousOnlyOperation, django.db.Error) as error:
            if not self.fail_silently:
                _name_way_out(error)
                raise
            # Neither its text nor the mails: both may be quoted there.
            logger.warning(
                "unstored   task=%s mails=%d error=%s",
                deliver_mail.name,
                len(messages),
                type(error).__name__,
            )
            return 0
        return len(messages)

    def _savepoint(self) -> AbstractContextManager[object]:
        """Keep the caller's transaction usable, where an error is not to be raised."""
        if not self.fail_silently:
            return nullcontext()
        return transaction.atomic(using=get_settings().database)


def _name_way_out(error: Exception) -> None:
    """Raise what says the way out for a mail, where *error* says that of a job."""
    if isinstance(error, SynchronousOnlyOperation):
        name_way_out(error, "send_mail()", "sync_to_async(send_mail)(…)")
    if isinstance(error, WrongDatabase):
        raise WrongDatabase(
            task=error.task,
            open_alias=error.open_alias,
            queue_alias=error.queue_alias,
            later=f"Send it after the commit, in transaction.on_commit(…, "
            f"using={error.open_alias!r})",
        ) from None
