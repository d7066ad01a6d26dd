"""
Mail connections: one to the mail server for several mails, where a worker sends many.

To connect, encrypt and log in takes several round trips, and a mail a few more. So a
worker keeps the connection by which a mail was sent for a few seconds, and the next
mail goes by it, whichever thread sends that. A connection by which anything went wrong
is closed: no mail fails for another's sake. Outside of workers, and in processes of a
pool, nobody would close what is kept, so that each mail has its own there.
"""

from __future__ import annotations

import logging
import smtplib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from django_pgqueue import signals
from django_pgqueue.backends import mail as mails
from django_pgqueue.backends.mail import connection
from django_pgqueue.backends.mail_files import note, put_back, take_out
from django_pgqueue.conf import DEPTH_LIMIT, LIMITS, MAIL_TASK, get_settings
from django_pgqueue.exceptions import PayloadTooLarge
from django_pgqueue.options.retry import Retry
from django_pgqueue.queues import mail_files
from django_pgqueue.tasks import database
from django_pgqueue.tasks.declare import task
from django_pgqueue.tasks.raised import Reject

if TYPE_CHECKING:
    from django.core.mail.backends.base import BaseEmailBackend

logger = logging.getLogger("django_pgqueue")

# How long a connection waits for the next mail, and after how many it is closed:
# servers end those that are idle for minutes, or have sent too much.
KEPT_SECONDS = 5.0
MAILS_MAX = 100


@dataclass(slots=True)
class _Kept:
    backend: BaseEmailBackend
    # Of which settings it was made.
    made_of: Any
    mails: int
    until: float


class _Connections:
    """Those of this process that wait for a mail."""

    def __init__(self) -> None:
        self.is_kept = False
        self._lock = threading.Lock()
        self._waiting: list[_Kept] = []
        self._timer: threading.Timer | None = None

    def take(self, made_of: Any) -> _Kept | None:
        """Return one that was made of the same settings, and still works."""
        while True:
            with self._lock:
                # The latest, so that the others have their rest.
                same = [each for each in self._waiting if each.made_of == made_of]
                if not same:
                    return None
                self._waiting.remove(same[-1])
            if _answers(same[-1].backend):
                return same[-1]
            close(same[-1].backend)

    def give(self, kept: _Kept) -> bool:
        """Keep one for the next mail; False: it is to be closed."""
        with self._lock:
            if not self.is_kept or kept.mails >= MAILS_MAX:
                return False
            kept.until = time.monotonic() + KEPT_SECONDS
            self._waiting.append(kept)
            if self._timer is None:
                self._start_timer(KEPT_SECONDS)
            return True

    def close_old(self, *, every: bool = False) -> None:
        """Close what has waited for too long; *every*: all that waits."""
        with self._lock:
            now = time.monotonic()
            old = [each for each in self._waiting if every or each.until <= now]
            self._waiting = [each for each in self._waiting if each not in old]
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._waiting:
                self._start_timer(min(each.until for each in self._waiting) - now)
        for each in old:
            close(each.backend)

    def _start_timer(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self.close_old)
        self._timer.daemon = True
        self._timer.start()


_connections = _Connections()


@contextmanager
def lent(through: str | None) -> Iterator[BaseEmailBackend]:
    """
    Lend an open backend that sends one mail; an error within closes it.

    Raises:
        SettingsError: As mail_route.connection().
    """
    backend = connection(through)
    made_of = _made_of(backend)
    kept = _connections.take(made_of) or _Kept(backend, made_of, 0, 0.0)
    try:
        kept.backend.open()
        yield kept.backend
    except BaseException:
        close(kept.backend)
        raise
    kept.mails += 1
    if smtp(kept.backend) is None or not _connections.give(kept):
        close(kept.backend)


def smtp(backend: BaseEmailBackend) -> smtplib.SMTP | None:
    """Return the open connection of a backend that is Django's for SMTP, or like it."""
    found = getattr(backend, "connection", None)
    return found if isinstance(found, smtplib.SMTP) else None


def close(backend: BaseEmailBackend) -> None:
    """Close *backend*; what goes wrong there is no reason to send a mail again."""
    try:
        backend.close()
    except Exception as error:
        logger.warning("unclosed   mail connection error=%s", type(error).__name__)


def _answers(backend: BaseEmailBackend) -> bool:
    """Whether the server is still there; it may have hung up, or be another by now."""
    connected = smtp(backend)
    try:
        return connected is not None and connected.noop()[0] == 250
    except (smtplib.SMTPException, OSError):
        return False


def _made_of(backend: BaseEmailBackend) -> Any:
    """Return what tells a new backend from one of other settings: host, user, …"""
    said = {
        name: value
        for name, value in vars(backend).items()
        if name != "connection" and name[:1] != "_"
    }
    return type(backend), said


def _keep(**kwargs: Any) -> None:
    _connections.is_kept = True


def _close(**kwargs: Any) -> None:
    _connections.is_kept = False
    _connections.close_old(every=True)


signals.worker_started.connect(_keep, dispatch_uid="django_pgqueue.mail_connections")
signals.worker_stopped.connect(_close, dispatch_uid="django_pgqueue.mail_connections")


# Deliver mail -------------------------------------------------------------------------
# Deliver mail: the task that sends stored mails, and what an answer to one means.
#
# SMTP is at least once: who dies between a server's 250 and its own note of that sends
# the mail again, under the same Message-ID.


# Address by address, what a server has answered: a code and a text.
Refusals = dict[str, tuple[int, bytes]]

# About eight hours, in which a server that is down comes back.
RETRY = Retry(max_attempts=20, base="5s", cap="1h", jitter="equal")


@task(
    name=MAIL_TASK,
    retries=RETRY,
    timeout="5m",
    # Whatever PGQUEUE['DEFAULTS'] say: a mail that is on its way is not forgotten, and
    # one that was sent is noted at once.
    ack_policy="on_success",
    settle="immediate",
)
def deliver_mail(mail: dict[str, Any]) -> str:
    """
    Send a stored mail through the backend that PGQUEUE['EMAIL'] names.

    Recipients whom the server refuses while it takes the mail for others get a job of
    their own: those others are never sent to for the sake of these.

    Returns:
        The Message-ID, the same on every attempt.

    Raises:
        Reject: The server has refused it for good, or no mail can be like that, or a
            file of it is gone.
    """
    message = mails.read(put_back(mail))
    through = get_settings().email.through
    with lent(through) as backend, _watched(backend) as refused:
        try:
            sent = backend.send_messages([message])
        except (smtplib.SMTPException, ValueError) as error:
            if _is_final(error, backend):
                raise Reject(_words(error)) from error
            raise
    if sent == 0:
        raise RuntimeError(
            f"{type(backend).__module__}.{type(backend).__qualname__} says that it has "
            f"sent nothing; with fail_silently it would not say why."
        )
    if refused:
        _store_rest({**mail, "only": sorted(refused)})
    return mails.message_id(mail)


def store_mails(written: Sequence[Mapping[str, Any]]) -> list[int]:
    """
    Store a job for each mail that mail.write() has made, one INSERT; return their ids.

    Raises:
        LookupError: A mail refers to a file that is gone.
        PayloadTooLarge: One exceeds PGQUEUE['PAYLOAD_BYTES_MAX'], or its files exceed
            FILES_BYTES_MAX.
        EnqueueError: As bulk().
    """
    lighter, files = take_out(deliver_mail.name, written)
    if not files:
        return _store(lighter)
    with database.transaction() as (_connection, cursor):
        mail_files.keep(cursor, files)
        jobs = _store(lighter)
        note(cursor, jobs, lighter)
    return jobs


def _store(written: Sequence[Mapping[str, Any]]) -> list[int]:
    mail_task = deliver_mail.using(queue=get_settings().email.queue)
    try:
        return [job.id for job in mail_task.bulk([{"mail": each} for each in written])]
    except PayloadTooLarge as error:
        raise PayloadTooLarge(
            task=deliver_mail.name,
            payload_bytes=error.payload_bytes,
            payload_bytes_max=error.payload_bytes_max,
            what="a mail and its attachments",
            way_out="Send a link to what is large",
        ) from None


def _store_rest(mail: Mapping[str, Any]) -> None:
    """
    Store a job for the recipients of a mail who were refused, whatever its size.

    Past the limits of payloads and of the queue: were it refused, the others would be
    sent to again by every attempt.
    """
    settings = get_settings()
    unlimited = replace(
        settings,
        payload_bytes_max=int(LIMITS["payload_bytes_max"][1]),
        queues={
            name: {key: said for key, said in options.items() if key != DEPTH_LIMIT}
            for name, options in settings.queues.items()
        },
    )
    rest = deliver_mail.using(queue=settings.email.queue)
    checked = rest._checked((), {"mail": mail}, unlimited)
    with database.transaction() as (_connection, cursor):
        job = rest._store(*checked)
        # They are kept for the job of the others, which runs.
        note(cursor, [job.id], [mail])


@contextmanager
def _watched(backend: BaseEmailBackend) -> Iterator[Refusals]:
    """
    Give a dict that gets the recipients whom *backend* leaves out of a mail.

    smtplib returns them, and Django's backend drops what it returns.
    """
    refused: Refusals = {}
    connected = smtp(backend)
    if connected is None:
        yield refused
        return
    send = connected.sendmail

    def sendmail(*args: Any, **kwargs: Any) -> Refusals:
        refused.update(send(*args, **kwargs))
        return refused

    connected.sendmail = sendmail  # type: ignore[method-assign]
    try:
        yield refused
    finally:
        # The next mail may go by the same connection.
        del connected.sendmail


def _is_final(error: Exception, backend: BaseEmailBackend) -> bool:
    """
    Say whether a mail that *backend* failed with could never be sent.

    A 5xx to a login or a greeting is about the server or the settings, and not about
    the mail: it is tried again.
    """
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(500 <= code <= 599 for code, _ in error.recipients.values())
    if isinstance(error, (smtplib.SMTPSenderRefused, smtplib.SMTPDataError)):
        return 500 <= error.smtp_code <= 599
    # Of an address; that of an API may be about the answer.
    return isinstance(error, ValueError) and smtp(backend) is not None


def _words(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        answers = error.recipients.items()
        return "; ".join(f"{each}: {_answer(*said)}" for each, said in answers)
    if isinstance(error, smtplib.SMTPResponseException):
        return _answer(error.smtp_code, error.smtp_error)
    return f"{type(error).__name__}: {error}"


def _answer(code: int, text: bytes | str) -> str:
    said = text.decode(errors="replace") if isinstance(text, bytes) else text
    return f"{code} {said}"
