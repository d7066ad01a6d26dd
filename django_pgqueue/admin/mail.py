"""
Mail: what the page of a mail's job shows, and the act that sends it again.

Whoever may see payloads sees from whom, to whom, the subject and what parts there are.
Bodies and files need ``pgqueue.view_mail_body`` besides: they hold the links of
password resets. A body is shown as the text that it is, HTML too, and a file is only
downloaded, so that nothing which somebody has mailed runs in the admin's origin.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email import message_from_bytes
from typing import Any

from django.db.models import TextField
from django.db.models.functions import Cast
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.http import content_disposition_header
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import payload
from django_pgqueue.admin.acts import Act, Confirm, Work, may
from django_pgqueue.conf import MAIL_TASK, get_settings
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.models.job import ArchivedState
from django_pgqueue.operators import human
from django_pgqueue.redaction.names import PLACEHOLDER
from django_pgqueue.tasks.payload import READING_FAILS, decode_value, encode_value
from django_pgqueue.tasks.redact import redact_job

VIEW_BODY = "view_mail_body"
# Both, for a file.
FILE_PERMISSIONS = ("view_payload", VIEW_BODY)

# Parts that a page lists.
PARTS_MAX = 100

UNREADABLE = (*READING_FAILS, PgQueueError)

# What cannot stand in a header, or would be taken for a folder.
UNFIT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f/\\]")

# As Django says of a file without one.
UNKNOWN_KIND = "application/octet-stream"

# The finished text of a mail, as a file.
TEXT_NAME = "mail.eml"

ADDRESSES = (
    (_("To"), "to"),
    (_("Cc"), "cc"),
    (_("Bcc"), "bcc"),
    (_("Reply to"), "reply_to"),
    (_("To these alone"), "only"),
)


@dataclass(frozen=True, slots=True)
class File:
    """
    A part of a mail besides its bodies.

    Attributes:
        name: What it is called; "": it has no name.
        kind: Its content type.
        content: Its text, its bytes, or what stands for a file beside the mail.
        is_mime: Whether that is a part with headers of its own.
    """

    name: str
    kind: str
    content: Any
    is_mime: bool = False

    @property
    def is_hidden(self) -> bool:
        """Whether REDACT hides it."""
        return bool(self.content == PLACEHOLDER)

    @property
    def size(self) -> int:
        """How many bytes there are."""
        if isinstance(self.content, dict):
            return int(self.content["bytes"])
        return len(self.read())

    def read(self) -> bytes:
        """
        Return what it is, from beside the mail if it is there.

        Raises:
            LookupError: It is gone.
        """
        from django_pgqueue.backends.mail_files import fetch

        data = self.content
        if isinstance(data, dict):
            data = fetch([data["file"]])[data["file"]]
        if isinstance(data, str):
            data = data.encode()
        if self.is_mime:
            inner = message_from_bytes(data).get_payload(decode=True)
            return inner if isinstance(inner, bytes) else bytes(data)
        return bytes(data)


def is_mail(row: Any) -> bool:
    """Whether a row is the job of a mail."""
    return bool(row.task == MAIL_TASK)


def may_see_arguments(request: HttpRequest, row: Any) -> bool:
    """Whether the user may see all that a job carries: of a mail, its bodies too."""
    return payload.may_see(request) and (not is_mail(row) or may(request, VIEW_BODY))


def shown(request: HttpRequest, row: Any) -> dict[str, Any]:
    """Return what the page of a mail's job shows to one who may see payloads."""
    may_see_body = may(request, VIEW_BODY)
    page = {"may_see_body": may_see_body, "view_body": f"pgqueue.{VIEW_BODY}"}
    try:
        mail = _redacted(row)
        facts = [
            (_("From"), str(mail["from_email"])),
            *((label, _listed(mail.get(name))) for label, name in ADDRESSES),
            (_("Subject"), str(mail["subject"])),
            *((name, _header(mail, name)) for name in ("Message-ID", "Date")),
        ]
        parts = [
            {
                "name": file.name,
                "kind": file.kind,
                "size": "" if file.is_hidden else human.size(file.size),
                # None: it is not offered.
                "place": place if may_see_body and not file.is_hidden else None,
            }
            for place, file in enumerate(files_of(mail)[:PARTS_MAX])
        ]
        texts = _texts(mail) if may_see_body else []
    except UNREADABLE:
        return page
    facts = [fact for fact in facts if fact[1]]
    return {**page, "facts": facts, "parts": parts, "texts": texts, "is_readable": True}


def file_response(row: Any, place: str) -> HttpResponse:
    """
    Return a file of a mail as a download that no browser opens by itself.

    Raises:
        Http404: There is none at this place, or it is hidden.
    """
    try:
        files = dict(enumerate(files_of(_redacted(row))))
        file = files[int(place)]
        if file.is_hidden:
            raise Http404("The file is hidden by PGQUEUE['REDACT']")
        data = file.read()
    except UNREADABLE:
        raise Http404("The mail has no such file") from None
    name = UNFIT_IN_NAMES.sub("_", file.name)
    headers = {
        "Content-Disposition": content_disposition_header(True, name) or "attachment",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "X-Content-Type-Options": "nosniff",
    }
    return HttpResponse(data, content_type="application/octet-stream", headers=headers)


def files_of(mail: Mapping[str, Any]) -> list[File]:
    """Return the files of a stored mail, in its order."""
    files = [_file(part) for part in mail.get("attachments", ())]
    if mail.get("text") is not None:
        files.append(File(TEXT_NAME, "message/rfc822", mail["text"]))
    return files


def stored(row: Any) -> dict[str, Any]:
    """
    Return the arguments of a mail's job, all of them: a page cuts what it shows.

    Raises:
        UndecodablePayload: They cannot be read.
        LookupError: The row has gone.
    """
    rows = type(row)._default_manager.using(get_settings().database)
    text = Cast("kwargs", TextField())
    found = rows.filter(pk=row.pk).values_list(text, flat=True).first()
    if found is None:
        raise LookupError(f"job {row.pk} has gone")
    kwargs = decode_value(found, fetches=False)
    if not isinstance(kwargs, dict):
        raise TypeError("kwargs are no object")
    return kwargs


def _redacted(row: Any) -> dict[str, Any]:
    """Return the stored mail without what nobody may see."""
    _args, kwargs = redact_job([], stored(row), row.task, get_settings())
    mail = kwargs["mail"]
    if not isinstance(mail, dict):
        raise TypeError("it is no mail")
    return mail


def _listed(addresses: Any) -> str:
    is_hidden = addresses == PLACEHOLDER
    return PLACEHOLDER if is_hidden else ", ".join(map(str, addresses or ()))


def _header(mail: Mapping[str, Any], name: str) -> str:
    headers = {key.lower(): value for key, value in mail["headers"].items()}
    return str(headers.get(name.lower(), ""))


def _file(part: Mapping[str, Any]) -> File:
    name = str(part.get("filename") or "")
    kind = part.get("mimetype") or mimetypes.guess_type(name)[0]
    is_mime = "mime" in part
    content = part["mime" if is_mime else "content"]
    return File(name, str(kind or UNKNOWN_KIND), content, is_mime)


def _texts(mail: Mapping[str, Any]) -> list[payload.Payload]:
    """Return the bodies as text, and what else there is, as JSON."""
    attributes = mail.get("attributes") or {}
    kind = attributes.get("content_subtype") or "plain"
    bodies = [(f"text/{kind}", mail["body"])]
    bodies += [
        (str(part["mimetype"]), part["content"])
        for part in mail.get("alternatives", ())
    ]
    rest = [(_("Headers"), mail["headers"]), (_("Attributes"), attributes)]
    return [_text(label, str(body)) for label, body in bodies] + [
        _text(label, payload.laid_out(encode_value(value)))
        for label, value in rest
        if value
    ]


def _text(label: Any, text: str) -> payload.Payload:
    most = payload.CHARACTERS_MAX
    return payload.Payload(label, text[:most], is_cut=len(text) > most)


# Sent again --------------------------------------------------------------------------


def _was_sent(row: Any) -> bool:
    return is_mail(row) and row.state == ArchivedState.SUCCEEDED


def _resend(work: Work) -> list[dict[Any, list[int]]]:
    """Store each mail that was sent as a new one."""
    from django_pgqueue.backends.mail import renewed
    from django_pgqueue.backends.mail_connections import store_mails

    made: dict[Any, list[int]] = {}
    for key, row in work.rows.items():
        if not _was_sent(row):
            continue
        try:
            made[key] = store_mails([renewed(stored(row)["mail"])])
        except UNREADABLE as error:
            problem = _("%(row)s was not sent again: %(error)s")
            work.problems.append(problem % {"row": row, "error": error})
    return [made]


RESEND = Act(
    name="resend",
    permissions=("retry",),
    label=_("Send again"),
    help=_("As a new mail, to the same recipients."),
    run=_resend,
    done=_("%(count)d sent again as a new mail, by job %(names)s."),
    entry=_("Sent again as a new mail, by job %(names)s."),
    left=_("%(count)d left: no mail that was sent."),
    form=Confirm,
    warning=_(
        "It was sent already: who has had it gets it twice. It goes to the same "
        "recipients as a new mail, with a Message-ID and a date of its own, so that "
        "nobody drops it as a repeat."
    ),
    offered=_was_sent,
    is_grave=True,
)
