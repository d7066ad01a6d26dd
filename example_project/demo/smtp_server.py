"""
The mail server: takes mail by SMTP, into a Maildir.

It takes its time, as real ones do, and refuses some: addresses at later.example for
two seconds (greylisting: 451), addresses at never.example for ever (550).

Of each mail that it says "250 OK" to, it writes a line to its ledger, a file that the
post office knows nothing of: the Message-ID and the moment. The verdict rests on it.
"""

from __future__ import annotations

import argparse
import asyncio
import email
import json
import mailbox
import os
import signal
import socket
import time
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session

LATER = "later.example"
NEVER = "never.example"
LATER_SECONDS = 2.0
MAIL_SECONDS = 0.06  # From the end of a mail to the 250.


class MailServer:
    """What aiosmtpd asks: which recipients to accept, and what to do with a mail."""

    def __init__(self, maildir: Path, ledger: Path) -> None:
        self._mailbox = mailbox.Maildir(maildir, create=True)
        self._ledger = ledger.open("a", buffering=1)  # A line at a time.
        self._first_asked: dict[str, float] = {}

    async def handle_RCPT(  # noqa: N802 - the name is aiosmtpd's.
        self,
        server: SMTP,
        session: Session,
        envelope: Envelope,
        address: str,
        options: list[str],
    ) -> str:
        domain = address.rpartition("@")[2]
        if domain == NEVER:
            return "550 5.1.1 No such mailbox"
        if domain == LATER:
            now = time.monotonic()
            if now - self._first_asked.setdefault(address, now) < LATER_SECONDS:
                return "451 4.7.1 Greylisted, try again later"
        envelope.rcpt_tos.append(address)
        envelope.rcpt_options.extend(options)
        return "250 OK"

    async def handle_DATA(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        await asyncio.sleep(MAIL_SECONDS)
        at = time.monotonic()
        # Whoever died before this moment gets no 250, so no mail is delivered for it.
        if has_hung_up(server.transport):
            return "421 4.4.2 Nobody is listening"
        assert isinstance(envelope.content, bytes)
        message = email.message_from_bytes(envelope.content)
        message["X-RcptTo"] = ", ".join(envelope.rcpt_tos)
        self._mailbox.add(message)
        line = {"message_id": message["Message-ID"], "at": at}
        self._ledger.write(json.dumps(line) + "\n")
        return "250 OK"


def has_hung_up(transport: asyncio.BaseTransport | None) -> bool:
    """Whether the other end is closed, even if the event loop has not heard yet."""
    if transport is None or transport.is_closing():
        return True
    number = os.dup(transport.get_extra_info("socket").fileno())
    with socket.socket(fileno=number) as peer:
        try:
            return peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False  # Open, and waiting for our answer.
        except ConnectionError:
            return True


async def serve(listener: socket.socket, server: MailServer) -> None:
    """Serve until SIGTERM."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    # Without a host name of ours, aiosmtpd would ask the DNS for one.
    listening = await loop.create_server(
        lambda: SMTP(server, hostname="localhost", loop=loop), sock=listener
    )
    await stopped.wait()
    listening.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="a listening socket")
    parser.add_argument("--maildir", type=Path, required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    given = parser.parse_args()
    listener = socket.socket(fileno=given.fd)
    asyncio.run(serve(listener, MailServer(given.maildir, given.ledger)))


if __name__ == "__main__":
    main()
