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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_pgqueue import signals
from django_pgqueue.backends.mail_route import connection

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
