"""Route: through which of Django's backends stored mails leave the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import django
from django.conf import settings
from django.core import mail
from django.utils.module_loading import import_string

from django_pgqueue.exceptions import SettingsError, did_you_mean

if TYPE_CHECKING:
    from django.core.mail.backends.base import BaseEmailBackend

SMTP = "django.core.mail.backends.smtp.EmailBackend"

KEY = "PGQUEUE['EMAIL']['through']"


def mailers() -> dict[str, dict[str, Any]] | None:
    """Return MAILERS; None: Django is older than 6.1, or the project has none."""
    return getattr(settings, "MAILERS", None) if django.VERSION >= (6, 1) else None


def check_route(through: str | None) -> None:
    """
    Check that mails leave the queue by PGQUEUE['EMAIL']['through'].

    Raises:
        SettingsError: It names no backend, or one that puts them into the queue again.
    """
    path, where = _path(through)
    try:
        backend = import_string(path)
    except ImportError as error:
        raise SettingsError(
            f"{KEY} is {through!r}, and {where} cannot be imported: {error}. Name a "
            f"backend such as {SMTP!r}."
        ) from None
    if getattr(backend, "stores_mail", False):
        raise SettingsError(
            f"{KEY} is {through!r}, and {where} puts mails into the queue again. Name "
            f"one that sends them, such as {SMTP!r}."
        )


def connection(through: str | None) -> BaseEmailBackend:
    """
    Return a new backend that sends mails.

    Raises:
        SettingsError: As check_route().
    """
    check_route(through)
    if mailers() is None:
        return mail.get_connection(through or SMTP)
    return mail.mailers[str(through)]


def waits_for_ever(through: str | None) -> bool:
    """Whether the route is Django's SMTP backend, and nobody has set a time-out."""
    if _path(through)[0] != SMTP:
        return False
    named = mailers()
    if named is None:
        # To read the setting is deprecated where a project has not written it.
        is_set = settings.is_overridden("EMAIL_TIMEOUT")  # type: ignore[misc]
        return not is_set or settings.EMAIL_TIMEOUT is None
    return named[str(through)].get("OPTIONS", {}).get("timeout") is None


def _path(through: str | None) -> tuple[str, str]:
    """Return the import path of the backend, and what to call it in an error."""
    named = mailers()
    if named is None:
        path = through or SMTP
        return path, f"the backend {path!r}"
    if through is None or through not in named:
        raise SettingsError(
            f"{KEY} is {through!r}; it must be an alias of MAILERS: that of a backend "
            f"which sends mails. Known are: {', '.join(named)}."
            f"{did_you_mean(str(through), list(named))}"
        )
    path = named[through].get("BACKEND", SMTP)
    return path, f"its BACKEND {path!r}"
