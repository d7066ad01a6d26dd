"""
Retry and redrive, as a person asks for them: counted, logged, and the workers woken.

The rows move by the verbs of queues/redrive.py. The log entries are written inside the
same transaction: where they are in another database, an action without its entry is
impossible, while an entry of an action that failed at its commit is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.db import IntegrityError, connections, transaction
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue.admin.read_only import ReadOnlyAdmin
from django_pgqueue.conf import get_settings
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.queues import redrive as verbs

Moved = list[tuple[int, str]]


def redrive(page: ReadOnlyAdmin, request: HttpRequest, ids: Sequence[int]) -> None:
    """Send dead letters back to their queues, and tell the user how many went."""
    moved = _do(page, request, ids, verbs.redrive, _('Redriven to queue "%(queue)s".'))
    if moved is None:
        return
    _tell(
        request,
        done=len(moved),
        left=len(ids) - len(moved),
        done_text=ngettext(
            "%(count)d dead letter went back to its queue.",
            "%(count)d dead letters went back to their queues.",
            len(moved),
        ),
        left_text=ngettext(
            "%(count)d had already gone: redriven, purged, or being moved just now.",
            "%(count)d had already gone: redriven, purged, or being moved just now.",
            len(ids) - len(moved),
        ),
    )


def retry_now(page: ReadOnlyAdmin, request: HttpRequest, ids: Sequence[int]) -> None:
    """Make waiting jobs due, and tell the user how many were waiting."""
    moved = _do(page, request, ids, verbs.retry_now, _("Made due at once."))
    if moved is None:
        return
    _tell(
        request,
        done=len(moved),
        left=len(ids) - len(moved),
        done_text=ngettext(
            "%(count)d job is due now.", "%(count)d jobs are due now.", len(moved)
        ),
        left_text=ngettext(
            "%(count)d was not waiting for a time: due, running, parked or ended.",
            "%(count)d were not waiting for a time: due, running, parked or ended.",
            len(ids) - len(moved),
        ),
    )


def _do(
    page: ReadOnlyAdmin,
    request: HttpRequest,
    ids: Sequence[int],
    verb: Callable[[Any, Sequence[int]], Moved],
    entry: str,
) -> Moved | None:
    """Do *verb* with the rows *ids*; None, and a message, when the table refuses."""
    connection = connections[get_settings().database]
    try:
        with transaction.atomic(using=connection.alias):
            rows = page.get_queryset(request).only("task").in_bulk(list(ids))
            with connection.cursor() as cursor:
                moved = verb(cursor, ids)
            for queue in sorted({queue for _id, queue in moved}):
                wake_after_commit(connection, queue)
                LogEntry.objects.log_actions(
                    cast("int", request.user.pk),
                    [
                        rows.get(id_, page.model(pk=id_))
                        for id_, its in moved
                        if its == queue
                    ],
                    CHANGE,
                    entry % {"queue": queue},
                )
    except IntegrityError as error:
        # A row that somebody wrote by hand and that no queue may contain.
        problem = _("Nothing was moved, since the queue refuses a row: %(error)s")
        messages.error(request, problem % {"error": error})
        return None
    return moved


def _tell(
    request: HttpRequest, *, done: int, left: int, done_text: str, left_text: str
) -> None:
    parts = []
    if done or not left:
        parts.append(done_text % {"count": done})
    if left:
        parts.append(left_text % {"count": left})
    level = messages.SUCCESS if not left else messages.WARNING
    messages.add_message(request, level, " ".join(parts))
