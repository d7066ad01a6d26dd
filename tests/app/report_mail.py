"""A mail backend that refuses every mail for good."""

from __future__ import annotations

import smtplib
from typing import Any

from django.core.mail.backends.base import BaseEmailBackend


class Refusing(BaseEmailBackend):
    """Answer 550."""

    def send_messages(self, messages: Any) -> int:
        """Refuse them."""
        raise smtplib.SMTPSenderRefused(550, b"no", "a@example.com")
