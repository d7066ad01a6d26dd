"""Mails of tests: a real SMTP server, and settings by which mails go there."""

from __future__ import annotations

import asyncio
import email
import threading
from typing import Any

import django
from aiosmtpd.smtp import SMTP, Envelope, Session

from django_pgqueue.backends.mail import SMTP as SMTP_BACKEND
from django_pgqueue.conf import EMAIL_BACKEND
from example_project.postoffice.tests import mail_server

TIMEOUT_SECONDS = 30


class MailServer(mail_server.MailServer):
    """
    That of the post office, which also keeps clients waiting, or hangs up.

    Attributes:
        answers: What to say to the next mails, before ``answer``; "": it hangs up.
        asked: The Message-ID of each mail, whatever the answer to it.
        peers: From which port each of them came.
        open: How many clients are connected.
        gate: Closed, it takes a mail and answers once it is open.
    """

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[str] = []
        self.asked: list[str] = []
        self.peers: list[int] = []
        self._transports: list[asyncio.BaseTransport] = []
        self.gate = threading.Event()
        self.gate.set()

    async def handle_DATA(  # noqa: N802 - the name is aiosmtpd's.
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        assert isinstance(envelope.content, bytes)
        self.peers.append(session.peer[1])
        if server.transport not in self._transports:
            self._transports.append(server.transport)
        self.asked.append(email.message_from_bytes(envelope.content)["Message-ID"])
        await asyncio.get_running_loop().run_in_executor(None, self.gate.wait)
        if not self.answers:
            return await super().handle_DATA(server, session, envelope)
        answer = self.answers.pop(0)
        if not answer:
            assert server.transport is not None
            server.transport.abort()
        return answer or "421 Gone"

    @property
    def open(self) -> int:
        """Of the clients that have sent a mail."""
        return sum(not each.is_closing() for each in self._transports)

    def hang_up(self) -> None:
        """End all connections, as a server does that is started anew."""
        for each in self._transports:
            self._loop.call_soon_threadsafe(each.close)

    def __enter__(self) -> MailServer:
        super().__enter__()
        return self

    def __exit__(self, *args: object) -> None:
        self.gate.set()
        super().__exit__(*args)


def mail_settings(
    port: int, *, timeout: float | None = TIMEOUT_SECONDS
) -> dict[str, Any]:
    """Return settings of Django, by name: all mails go through the queue to *port*."""
    options = {"host": "127.0.0.1", "port": port, "timeout": timeout}
    if django.VERSION >= (6, 1):
        return {
            "MAILERS": {
                "default": {"BACKEND": EMAIL_BACKEND},
                "smtp": {"BACKEND": SMTP_BACKEND, "OPTIONS": options},
            }
        }
    named = {f"EMAIL_{name.upper()}": value for name, value in options.items()}
    return {"EMAIL_BACKEND": EMAIL_BACKEND, **named}


# What PGQUEUE says beside them.
EMAIL = {"through": "smtp" if django.VERSION >= (6, 1) else None}
