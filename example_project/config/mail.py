"""
EMAIL_URL as settings of Django: MAILERS, or EMAIL_… before Django 6.1.

    smtp://user:password@host:25     smtps:// or smtp+tls:// for STARTTLS
    smtp+ssl://…:465                 TLS from the start
    consolemail://                   to standard output
    filemail:///a/folder             a file each
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import django
import environ

# Django's SMTP backend, except that it never delivers to half of the recipients.
SMTP_BACKEND = "postoffice.smtp.EmailBackend"
# Stores what it is given as a job. Mails of the post office are jobs already.
QUEUE_BACKEND = "django_pgqueue.backends.email.EmailBackend"

# How AdminEmailHandler names it.
TO_QUEUE = (
    {"using": "queue"} if django.VERSION >= (6, 1) else {"email_backend": QUEUE_BACKEND}
)


def mail_settings(url: str, *, timeout: float) -> dict[str, Any]:
    """
    Return the settings by name.

    Args:
        url: As above.
        timeout: Seconds to connect to a mail server, and for each of its answers.
    """
    parts = environ.Env.email_url_config(url)
    backend = parts["EMAIL_BACKEND"]
    options: dict[str, Any] = {}
    if backend.endswith("smtp.EmailBackend"):
        backend = SMTP_BACKEND
        options = {
            "host": parts["EMAIL_HOST"] or "localhost",
            "port": parts["EMAIL_PORT"] or 25,
            "username": parts["EMAIL_HOST_USER"] or "",
            "password": parts["EMAIL_HOST_PASSWORD"] or "",
            "use_tls": parts.get("EMAIL_USE_TLS", False),
            "use_ssl": parts.get("EMAIL_USE_SSL", False),
            "timeout": timeout,
        }
    elif backend.endswith("filebased.EmailBackend"):
        options = {"file_path": f"/{parts['EMAIL_FILE_PATH']}"}

    if django.VERSION >= (6, 1):
        leaves = {"BACKEND": backend, "OPTIONS": options}
        return {"MAILERS": {"default": leaves, "queue": {"BACKEND": QUEUE_BACKEND}}}
    named = {"username": "EMAIL_HOST_USER", "password": "EMAIL_HOST_PASSWORD"}
    return {"EMAIL_BACKEND": backend} | {
        named.get(name, f"EMAIL_{name.upper()}"): value
        for name, value in options.items()
    }


def through(settings: Mapping[str, Any]) -> str:
    """Return what PGQUEUE["EMAIL"] says, so that mails leave as these settings say."""
    return "default" if "MAILERS" in settings else str(settings["EMAIL_BACKEND"])


def as_admins(addresses: Sequence[str]) -> list[Any]:
    """Return addresses as ADMINS has them: alone, or with names before Django 6.0."""
    if django.VERSION >= (6, 0):
        return list(addresses)
    return [(address, address) for address in addresses]
