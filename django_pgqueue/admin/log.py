"""
Log: who did what, in Django's own log of the admin, and the message about it.

An entry names the rows and what became of them, and no argument: whoever may view a
job reads its history, also without the permission to see what it carries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.http import HttpRequest

from django_pgqueue.tasks import operate

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise

    # A text with %(count)d.
    Counted = str | _StrPromise


def log(
    request: HttpRequest, rows: Sequence[Any], text: str, *, flag: int = CHANGE
) -> None:
    """
    Write one entry for each of *rows*; *text* says what was done.

    flag: ADDITION, CHANGE or DELETION of Django's log.
    """
    if rows:
        LogEntry.objects.log_actions(
            cast("int", request.user.pk),
            cast("Any", rows),
            flag,
            text,
        )


def log_each(
    request: HttpRequest,
    rows: Iterable[Any],
    entry: Callable[[Any], str],
    *,
    flag: int = CHANGE,
) -> None:
    """Write one entry for each of *rows*: what *entry* says of it."""
    entries: dict[str, list[Any]] = {}
    for row in rows:
        entries.setdefault(entry(row), []).append(row)
    for text, alike in entries.items():
        log(request, alike, text, flag=flag)


def who(request: HttpRequest) -> str:
    """Return the user's name, as the queue's tables keep it."""
    return request.user.get_username()[: operate.BY_CHARACTERS_MAX]


def tell(request: HttpRequest, *parts: tuple[int, Counted], left: int = 0) -> None:
    """
    Tell the user what was done.

    Args:
        request: Whose page shows the message.
        parts: (count, text with %(count)d) of each kind of outcome; a kind without
            rows is left out, unless there is nothing else to say.
        left: How many of the counts, in the last part, are rows left as they were.
    """
    said = [text % {"count": count} for count, text in parts if count]
    if not said:
        said = [parts[0][1] % {"count": 0}]
    level = messages.WARNING if left else messages.SUCCESS
    messages.add_message(request, level, " ".join(said))
