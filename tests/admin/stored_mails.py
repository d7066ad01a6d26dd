"""Rows of mails, as the backend stores them."""

from __future__ import annotations

import json
from typing import Any

from django.core.mail import EmailMultiAlternatives

from django_pgqueue.backends import mail
from django_pgqueue.backends.mail_connections import deliver_mail
from django_pgqueue.tasks.payload import encode_value

HTML = "<script>alert('mail')</script><p>HTML body</p>"
FILE = b"%PDF\x00<script>alert('file')</script>"


def a_mail(name: str = "receipt.pdf", **said: Any) -> dict[str, Any]:
    """Return the columns of a job whose mail has both bodies and a file."""
    message = EmailMultiAlternatives(
        "Your order",
        "Plain body",
        "shop@example.org",
        ["ann@example.org"],
        headers={"X-Order": "17", **said},
    )
    message.attach_alternative(HTML, "text/html")
    message.attach(name, FILE, "application/pdf")
    return columns_of(message)


def columns_of(message: EmailMultiAlternatives) -> dict[str, Any]:
    """Return the columns of the job of *message*."""
    kwargs = json.loads(encode_value({"mail": mail.write(message)}))
    return {"task": deliver_mail.name, "kwargs": kwargs}
