"""
Django's SMTP backend, except that a mail goes to all of its recipients or to none.

smtplib hands a mail over as soon as one recipient is accepted, and Django ignores whom
the server refused: the others would never get it, and nobody would know. And a retry
for their sake would send it to the first ones again. So one refusal stops the mail
before its text is sent, and the answer decides: 4xx try again, 5xx give up.
"""

from __future__ import annotations

import smtplib
from collections.abc import Sequence

from django.core.mail.backends import smtp


class AllOrNone:
    """For smtplib.SMTP: a refused recipient is an error, not a remark."""

    def rcpt(self, recip: str, options: Sequence[str] = ()) -> tuple[int, bytes]:
        code, answer = super().rcpt(recip, options)  # type: ignore[misc]
        if code not in (250, 251):
            raise smtplib.SMTPRecipientsRefused({recip: (code, answer)})
        return code, answer


class SMTP(AllOrNone, smtplib.SMTP):
    pass


class SMTPOverTLS(AllOrNone, smtplib.SMTP_SSL):
    pass


class EmailBackend(smtp.EmailBackend):
    """What EMAIL_URL=smtp://… names in config/mail.py."""

    @property
    def connection_class(self) -> type[smtplib.SMTP]:
        return SMTPOverTLS if self.use_ssl else SMTP
