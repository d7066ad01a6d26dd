"""A real SMTP server for tests, that answers as it is told."""

from __future__ import annotations

import asyncio
import email
import threading
from email.message import Message

from aiosmtpd.smtp import SMTP, Envelope, Session


class MailServer:
    """
    Listens on a free port of 127.0.0.1 for as long as its with block lasts.

    Attributes:
        port: Where.
        refusals: What to answer to an address instead of 250.
        answer: What to answer to a mail; a refused one is not kept.
        mails: (recipients, mail) of each that was accepted.
    """

    def __init__(self) -> None:
        self.port = 0
        self.refusals: dict[str, str] = {}
        self.answer = "250 OK"
        self.mails: list[tuple[list[str], Message]] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    async def handle_RCPT(  # noqa: N802 - the name is aiosmtpd's.
        self,
        server: SMTP,
        session: Session,
        envelope: Envelope,
        address: str,
        options: list[str],
    ) -> str:
        if address in self.refusals:
            return self.refusals[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        if self.answer.startswith("250"):
            assert isinstance(envelope.content, bytes)
            mail = email.message_from_bytes(envelope.content)
            self.mails.append((envelope.rcpt_tos, mail))
        return self.answer

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            self._loop.create_server(
                lambda: SMTP(self, hostname="localhost", loop=self._loop),
                "127.0.0.1",
                0,
            )
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for running in asyncio.all_tasks(self._loop):
            running.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def __enter__(self) -> MailServer:
        self._thread.start()
        assert self._ready.wait(10), "the mail server does not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
