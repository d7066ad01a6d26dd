"""
Mail files: what is large in a stored mail, kept once beside it.

A newsletter to ten thousand people has one PDF. So what takes FILE_BYTES_LEAST or more,
be it a file, an inline part or the finished text of a mail, stands in a table of its
own by its SHA-256, and the mail has a reference in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from django_pgqueue.exceptions import PayloadTooLarge
from django_pgqueue.queues import mail_files
from django_pgqueue.tasks import database
from django_pgqueue.tasks.raised import Reject

# Bytes from which on a file stands beside its mail.
FILE_BYTES_LEAST = 16_384

# Bytes of all that stands beside one mail, and so of one file: base64 makes it a third
# more, and few servers take more than that.
FILES_BYTES_MAX = 26_214_400

# Where in a part its bytes are.
PLACES = ("content", "mime")


def is_reference(value: Any) -> bool:
    """Whether *value* stands in a mail for a file beside it."""
    return isinstance(value, dict) and "file" in value


def references(mail: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what stands in a stored mail for files beside it."""
    return [value for value in _values(mail) if is_reference(value)]


def take_out(
    task: str, written: Iterable[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, bytes | None]]:
    """
    Return mails without what is large in them, and that by its digest.

    Args:
        task: The name of the task that sends mails, for errors.
        written: As mail.write() returns them; a reference stays one, and its file is
            None here.

    Raises:
        PayloadTooLarge: The files of a mail exceed FILES_BYTES_MAX.
    """
    files: dict[str, bytes | None] = {}
    # Mails to many have the same object, which is hashed once.
    known: dict[int, dict[str, Any]] = {}

    def out(value: Any) -> Any:
        if is_reference(value):
            files.setdefault(value["file"], None)
            return value
        if not isinstance(value, (str, bytes)) or len(value) < FILE_BYTES_LEAST:
            return value
        if id(value) not in known:
            data = value if isinstance(value, bytes) else value.encode()
            digest = sha256(data).hexdigest()
            files[digest] = data
            known[id(value)] = {"file": digest, "bytes": len(data)}
            if isinstance(value, str):
                known[id(value)]["is_text"] = True
        return known[id(value)]

    # A list: all of them live until the end, and so no id is used twice.
    mails = list(written)
    lighter = [_replaced(mail, out) for mail in mails]
    for mail in lighter:
        total = sum(int(each["bytes"]) for each in references(mail))
        if total > FILES_BYTES_MAX:
            raise PayloadTooLarge(
                task=task,
                payload_bytes=total,
                payload_bytes_max=FILES_BYTES_MAX,
                what="the files of a mail",
                way_out="Send a link to what is large",
                setting=None,
            )
    return lighter, files


def put_back(mail: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return a stored mail with its files in it.

    Raises:
        Reject: One is gone.
    """
    digests = {each["file"] for each in references(mail)}
    files = fetch(digests)

    def back(value: Any) -> Any:
        if not is_reference(value):
            return value
        data = files.get(value["file"])
        if data is None:
            raise Reject(f"the file {value['file']} of the mail is gone")
        return data.decode() if value.get("is_text") else data

    return _replaced(mail, back)


def fetch(digests: Iterable[str]) -> dict[str, bytes]:
    """Return the files that are there, by their digests."""
    wanted = sorted(digests)
    if not wanted:
        return {}
    with database.cursor() as cursor:
        return mail_files.fetch(cursor, wanted)


def note(cursor: Any, jobs: Sequence[int], mails: Iterable[Mapping[str, Any]]) -> None:
    """Note which files each of *jobs* has, by its mail."""
    uses = {
        (each["file"], job)
        for job, mail in zip(jobs, mails, strict=True)
        for each in references(mail)
    }
    if uses:
        mail_files.use(cursor, sorted(uses))


def _values(mail: Mapping[str, Any]) -> Iterator[Any]:
    for part in mail.get("attachments", ()):
        yield from (part[place] for place in PLACES if place in part)
    yield mail.get("text")


def _replaced(mail: Mapping[str, Any], of: Any) -> dict[str, Any]:
    """Return *mail* with what *of* makes of each value that may be large."""
    replaced = dict(mail)
    if "attachments" in mail:
        replaced["attachments"] = [
            {key: of(value) if key in PLACES else value for key, value in part.items()}
            for part in mail["attachments"]
        ]
    if mail.get("text") is not None:
        replaced["text"] = of(mail["text"])
    return replaced
