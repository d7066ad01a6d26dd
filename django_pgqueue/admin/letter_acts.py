"""What people can do with dead letters: redrive, set aside, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib.admin.models import DELETION
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import Act, Confirm
from django_pgqueue.admin.log import log, tell, who
from django_pgqueue.admin.row_acts import ReasonForm
from django_pgqueue.bounds import QUEUE_NAME
from django_pgqueue.tasks import operate
from django_pgqueue.worker.queue_names import unknown_queue

# Jobs that a message names.
HOLDERS_SHOWN = 5


class QueueForm(forms.Form):
    """The name of a queue; one that does not exist yet needs a tick."""

    queue = forms.CharField(
        label=gettext_lazy("Queue"), max_length=63, widget=forms.TextInput
    )
    is_new = forms.BooleanField(label=gettext_lazy("This queue is new"), required=False)

    def clean_queue(self) -> str:
        """Refuse what is no name of a queue."""
        queue: str = self.cleaned_data["queue"]
        if not QUEUE_NAME.fullmatch(queue):
            raise ValidationError(
                _(
                    "%(queue)s is no queue name: 1 to 63 letters, digits, '_', '.' and "
                    "'-', the first no '.' or '-'."
                ),
                params={"queue": queue},
            )
        return queue

    def clean(self) -> dict[str, Any]:
        """Ask which queue was meant, where there is none of that name."""
        cleaned: dict[str, Any] = super().clean() or {}
        name = cleaned.get("queue")
        said = None if name is None or cleaned["is_new"] else unknown_queue(name)
        if said is not None:
            self.add_error("queue", said)
        return cleaned


def _redrive(
    page: ActingAdmin, request: HttpRequest, ids: Sequence[int], data: dict[str, Any]
) -> None:
    """Send dead letters back, to their queues or all to one, and tell how many went."""
    rows = page.rows_by_key(request, ids)
    queue = data.get("queue")
    done = operate.redrive(list(rows), queue=queue)
    for to in sorted({queue or rows[id_].queue for id_ in done}):
        there = [rows[id_] for id_ in done if to == (queue or rows[id_].queue)]
        log_redrive(request, there, queue)
    tell(
        request,
        (
            len(done),
            ngettext(
                "%(count)d dead letter went back to its queue.",
                "%(count)d dead letters went back to their queues.",
                len(done),
            )
            if queue is None
            else ngettext(
                "%(count)d dead letter went to queue %(queue)s.",
                "%(count)d dead letters went to queue %(queue)s.",
                len(done),
            ).replace("%(queue)s", queue),
        ),
        *stayed(list(rows), done, asked=len(ids)),
        left=len(ids) - len(done),
    )


def stayed(
    ids: Sequence[int], done: Sequence[int], *, asked: int
) -> list[tuple[int, str]]:
    """Return how many of *ids* a redrive has left as they were, and why."""
    held = operate.key_holders(sorted({*ids} - {*done})) if len(done) < asked else {}
    parts = []
    if held:
        holders = ", ".join(
            f"#{job}" for job in sorted({*held.values()})[:HOLDERS_SHOWN]
        )
        text = ngettext(
            "%(count)d stays a dead letter, since a live job has its dedup key: "
            "{holders}.",
            "%(count)d stay dead letters, since live jobs have their dedup keys: "
            "{holders}.",
            len(held),
        ).replace("{holders}", holders)
        parts.append((len(held), text))
    return [*parts, _gone(asked - len(done) - len(held))]


def log_redrive(
    request: HttpRequest, letters: Sequence[Any], queue: str | None
) -> None:
    """Note that *letters* went to *queue*, or back to their own, which is one."""
    for before in sorted({letter.queue for letter in letters}):
        text = _('Redriven to queue "%(queue)s".') % {"queue": queue or before}
        if queue not in (None, before):
            text = _('Redriven to queue "%(queue)s"; it was in "%(before)s".') % {
                "queue": queue,
                "before": before,
            }
        log(request, [row for row in letters if row.queue == before], text)


def _set_aside(
    page: ActingAdmin, request: HttpRequest, ids: Sequence[int], data: dict[str, Any]
) -> None:
    """Move dead letters to the archive, with who and why."""
    rows = page.rows_by_key(request, ids)
    reason = data["reason"]
    done = operate.set_aside(list(rows), by=who(request), reason=reason)
    text = _("Set aside, to the archive: %(reason)s") % {"reason": reason}
    log(request, [rows[id_] for id_ in done], text)
    tell(
        request,
        (
            len(done),
            ngettext(
                "%(count)d dead letter was set aside, to the archive.",
                "%(count)d dead letters were set aside, to the archive.",
                len(done),
            ),
        ),
        _gone(len(ids) - len(done)),
        left=len(ids) - len(done),
    )


def _delete(
    page: ActingAdmin, request: HttpRequest, ids: Sequence[int], data: dict[str, Any]
) -> None:
    """Delete dead letters for ever."""
    rows = page.rows_by_key(request, ids)
    done = operate.delete_dead_letters(list(rows))
    log(request, [rows[id_] for id_ in done], _("Deleted."), flag=DELETION)
    tell(
        request,
        (
            len(done),
            ngettext(
                "%(count)d dead letter was deleted.",
                "%(count)d dead letters were deleted.",
                len(done),
            ),
        ),
        _gone(len(ids) - len(done)),
        left=len(ids) - len(done),
    )


def _gone(count: int) -> tuple[int, str]:
    text = _("%(count)d had already gone: redriven, purged, or being moved just now.")
    return count, text


REDRIVE = Act(
    name="redrive",
    permissions=("retry",),
    label=gettext_lazy("Redrive"),
    help=gettext_lazy("Back to its queue, with the same id, from attempt 1 on."),
    do=_redrive,
)

REDRIVE_TO = Act(
    name="redrive-to",
    permissions=("retry",),
    label=gettext_lazy("Redrive to another queue"),
    help=gettext_lazy("As redrive, to a queue that you name."),
    do=_redrive,
    form=QueueForm,
    warning=gettext_lazy(
        "They go to the queue that you name, with the same ids, from attempt 1 on. "
        "Look first whether a worker takes jobs from it."
    ),
)

SET_ASIDE = Act(
    name="set-aside",
    permissions=("cancel",),
    label=gettext_lazy("Set aside"),
    help=gettext_lazy("To the archive as cancelled: nobody needs it any more."),
    do=_set_aside,
    form=ReasonForm,
    warning=gettext_lazy(
        "They go to the archive as cancelled, with your name and the reason, and are "
        "deleted with the archive. From there, they cannot be redriven."
    ),
)

DELETE = Act(
    name="purge",
    permissions=("purge",),
    label=gettext_lazy("Delete"),
    help=gettext_lazy("For ever, with its arguments and errors."),
    do=_delete,
    form=Confirm,
    warning=gettext_lazy("They are deleted for ever, with their arguments and errors."),
    is_grave=True,
)
