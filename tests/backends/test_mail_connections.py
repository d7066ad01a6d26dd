"""Connections to the mail server: one for several mails, and never a wrong one."""

from __future__ import annotations

import pytest

from django_pgqueue.backends import mail_connections
from django_pgqueue.models import ArchivedJob
from django_pgqueue.testing import drain
from tests.backends.test_email import queued, send, server, start_mailer
from tests.harness.waiting import wait_for
from tests.harness.worker_process import wait_until_final

__all__ = ["queued", "server", "start_mailer"]


@pytest.fixture
def kept(queued):
    """As in the process of a worker."""
    mail_connections._keep()
    yield
    mail_connections._close()


def test_a_worker_sends_mails_by_one_connection(start_mailer, server):
    """And ends it when it stops."""
    worker = start_mailer("--threads", "1")

    wait_until_final([send() for _ in range(5)])

    assert (5, 1) == (len(server.mails), len({*server.peers}))
    assert 0 == worker.stop()
    wait_for(lambda: server.open == 0, what="the connection is closed")


def test_a_mail_that_fails_fails_no_other(db, kept, server):
    """Its connection is closed; the next mail has a new one."""
    server.answers = ["250 OK", "554 5.7.1 Spam", "250 OK"]
    for _ in range(3):
        send()

    assert {"succeeded": 2, "dead": 1} == drain().statuses
    first, second, third = server.peers
    assert first == second != third


def test_a_connection_that_the_server_ended_is_not_used(db, kept, server):
    """The mail is sent at its first attempt, by a new one."""
    send()
    drain()
    server.hang_up()
    wait_for(lambda: server.open == 0, what="the server has hung up")
    job = send()

    assert {"succeeded": 1} == drain().statuses
    assert 2 == len({*server.peers})
    assert 1 == ArchivedJob.objects.get(pk=job).attempt


def test_a_connection_is_closed_when_no_mail_comes(db, kept, server, monkeypatch):
    """After a while, by itself."""
    monkeypatch.setattr(mail_connections, "KEPT_SECONDS", 0.05)
    send()
    drain()

    wait_for(lambda: server.open == 0, what="it is closed")
