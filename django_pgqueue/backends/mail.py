"""
Mail: a message of Django's as an argument of a job, and back.

Its parts are stored, and not its finished text: a backend that talks to the API of a
service reads parts. What a project has set on it besides, as such backends want, is
kept too. Message-ID and Date are fixed here, so that every attempt sends the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from datetime import datetime
from email import message_from_bytes, policy
from email.charset import Charset
from email.message import Message, MIMEPart
from email.mime.base import MIMEBase
from typing import TYPE_CHECKING, Any

import django
from django.conf import settings
from django.core import mail
from django.core.mail import EmailMessage, EmailMultiAlternatives
from django.core.mail.message import EmailAlternative, EmailAttachment
from django.utils.encoding import force_str
from django.utils.module_loading import import_string

from django_pgqueue.backends.mail_files import FILE_BYTES_LEAST
from django_pgqueue.exceptions import SettingsError, did_you_mean

if TYPE_CHECKING:
    from django.core.mail.backends.base import BaseEmailBackend

# What a message has in words of its own here; the rest of it are attributes.
LISTS = ("to", "cc", "bcc", "reply_to")
TEXTS = ("subject", "body", "from_email")
PARTS = ("attachments", "alternatives")
NOT_KEPT = frozenset(
    {*LISTS, *TEXTS, *PARTS, "extra_headers", "connection", "_connection"}
)

# Of a class of the project's, they may be said there.
OF_CLASSES = ("content_subtype", "mixed_subtype", "alternative_subtype", "encoding")

# What makes the finished text. Where a class of the project's has one of its own, as to
# sign a mail, only the text that it has made is the mail.
MAKERS = frozenset(
    name
    for kind in (EmailMessage, EmailMultiAlternatives)
    for name, value in vars(kind).items()
    if callable(value) and (name == "message" or name[:1] == "_" != name[1:2])
)

# Headers that are made where a message has none.
FIXED = ("Message-ID", "Date")

# What an alternative has; an attachment has a name, too.
PAIR = ("content", "mimetype")


def write(message: EmailMessage) -> dict[str, Any]:
    """
    Return all of *message* that a worker needs to send it.

    Raises:
        ValueError: A header has a line break, as where Django sends it.
    """
    has_own_text = _has_own(message, MAKERS)
    # Its headers are wanted: a film is not made text for them, but for each recipient.
    text = (message if has_own_text else _without_large(message)).message()
    written: dict[str, Any] = {
        name: force_str(getattr(message, name)) for name in TEXTS
    }
    for name in LISTS:
        if values := getattr(message, name):
            written[name] = [str(value) for value in values if value]
    written["headers"] = _headers(message, text)
    for name in PARTS:
        if parts := getattr(message, name, None):
            written[name] = [_write_part(part) for part in parts]
    attributes = {
        name: value for name, value in vars(message).items() if name not in NOT_KEPT
    }
    for name in OF_CLASSES:
        value = getattr(message, name, None)
        if value != getattr(EmailMultiAlternatives, name, None):
            attributes[name] = value
    if isinstance(charset := attributes.get("encoding"), Charset):
        del attributes["encoding"]
        written["charset"] = {
            "input_charset": charset.input_charset,
            "header_encoding": charset.header_encoding,
            "body_encoding": charset.body_encoding,
        }
    if attributes:
        written["attributes"] = attributes
    if has_own_text:
        written["text"] = text.as_bytes()
        written["headers"] |= {name: str(text[name]) for name in FIXED if name in text}
    if _has_own(message, ("recipients",)):
        written["only"] = [str(address) for address in message.recipients()]
    return written


def read(written: Mapping[str, Any]) -> EmailMessage:
    """Return the message that write() was given."""
    message = StoredMail(**{name: written[name] for name in TEXTS})
    for name in LISTS:
        setattr(message, name, list(written.get(name, ())))
    message.extra_headers = dict(written["headers"])
    message.attachments = [
        _read_mime(part["mime"]) if "mime" in part else EmailAttachment(**part)
        for part in written.get("attachments", ())
    ]
    message.alternatives = [
        EmailAlternative(part["content"], part["mimetype"])
        for part in written.get("alternatives", ())
    ]
    # Past descriptors: whoever may edit arguments sets data, and runs nothing.
    vars(message).update(written.get("attributes", {}))
    if "charset" in written:
        message.encoding = _read_charset(**written["charset"])
    message.only, message.text = written.get("only"), written.get("text")
    return message


def message_id(written: Mapping[str, Any]) -> str:
    """Return the Message-ID of a stored mail; "": the class that made it gave none."""
    headers = {name.lower(): value for name, value in written["headers"].items()}
    return str(headers.get("message-id", ""))


def renewed(written: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return a stored mail as a new one: with a Message-ID and a date of its own.

    Whoever has had the first would take one with the same for its repeat, and drop it.

    Raises:
        ValueError: Its class has made its text, which may be signed.
    """
    if written.get("text") is not None:
        raise ValueError("its text was made, and perhaps signed, where it was sent")
    message = read({**written, "attachments": []})
    message.extra_headers = {
        name: value
        for name, value in message.extra_headers.items()
        if name.lower() not in {fixed.lower() for fixed in FIXED}
    }
    return {**written, "headers": _headers(message, message.message())}


class StoredMail(EmailMultiAlternatives):
    """A mail out of a job."""

    # To whom it goes, whatever its headers say; None: to whom they say.
    only: list[str] | None = None
    # As it was made when it was stored; None: it is made of its parts.
    text: bytes | None = None

    def recipients(self) -> list[str]:
        """Return to whom it goes."""
        return super().recipients() if self.only is None else self.only

    def message(self, **told: Any) -> Any:
        """Return its text; *told*: what Django tells its own."""
        if self.text is None:
            return super().message(**told)
        made = message_from_bytes(self.text, _class=FinishedText)
        made.text = self.text
        return made


class FinishedText(Message):
    """A text that is sent as it is, since it may be signed."""

    text = b""

    def as_bytes(self, *args: Any, linesep: str = "\r\n", **kwargs: Any) -> bytes:
        """Return it, with the ends of lines that SMTP wants."""
        lines = self.text.replace(b"\r\n", b"\n").split(b"\n")
        return linesep.encode().join(lines)


def _without_large(message: EmailMessage) -> EmailMessage:
    """Return *message* without the files that stand beside it."""
    lighter = copy(message)
    lighter.attachments = [
        part
        for part in message.attachments
        if isinstance(part, (MIMEBase, MIMEPart))
        or not isinstance(part[1], (str, bytes))
        or len(part[1]) < FILE_BYTES_LEAST
    ]
    return lighter


def _has_own(message: EmailMessage, names: Iterable[str]) -> bool:
    """Whether the class of *message* has a method of its own by one of *names*."""
    is_multi = isinstance(message, EmailMultiAlternatives)
    base = EmailMultiAlternatives if is_multi else EmailMessage
    return any(
        getattr(type(message), name, None) is not getattr(base, name, None)
        for name in names
    )


def _read_charset(input_charset: str, **encodings: Any) -> Charset:
    charset = Charset(input_charset)
    vars(charset).update(encodings)
    return charset


def _headers(message: EmailMessage, text: Message) -> dict[str, Any]:
    headers = {
        str(name): value if isinstance(value, datetime) else str(value)
        for name, value in message.extra_headers.items()
    }
    given = {name.lower() for name in headers}
    return headers | {
        name: str(text[name])
        for name in FIXED
        if name.lower() not in given and name in text
    }


def _write_part(part: Any) -> dict[str, Any]:
    if isinstance(part, (MIMEBase, MIMEPart)):
        return {
            "mime": part.as_bytes(),
            "filename": part.get_filename(),
            "mimetype": part.get_content_type(),
        }
    names = PAIR if len(part) == 2 else ("filename", *PAIR)
    written = dict(zip(names, part, strict=True))
    content = written["content"]
    if isinstance(content, EmailMessage):
        content = content.message()
    if isinstance(content, Message):
        content = content.as_bytes()
    elif isinstance(content, (bytearray, memoryview)):
        content = bytes(content)
    return {**written, "content": content}


class _Part(MIMEBase):
    """A part as a parser makes it: without headers of its own."""

    def __init__(self, policy: Any = policy.compat32) -> None:
        Message.__init__(self, policy=policy)


def _read_mime(data: bytes) -> Any:
    # Before 6.0 only parts of the old kind are known to Django.
    if django.VERSION >= (6, 0):
        return message_from_bytes(data, _class=MIMEPart, policy=policy.default)  # type: ignore[arg-type]
    return message_from_bytes(data, _class=_Part)


# Mail route ---------------------------------------------------------------------------


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
