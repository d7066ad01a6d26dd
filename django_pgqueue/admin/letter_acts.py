"""What people can do with dead letters: redrive, set aside, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.admin.models import DELETION
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, ngettext_lazy

from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import Act, Confirm
from django_pgqueue.admin.log import log_each, tell
from django_pgqueue.admin.row_acts import Outcome, ReasonForm, on_all
from django_pgqueue.bounds import QUEUE_NAME
from django_pgqueue.tasks import operate
from django_pgqueue.worker.queue_names import unknown_queue

if TYPE_CHECKING:
    from django_pgqueue.admin.log import Counted

GONE = gettext_lazy(
    "%(count)d had already gone: redriven, purged, or being moved just now."
)

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
    done = operate.redrive(rows, queue=queue)
    log_redrive(request, [rows[id_] for id_ in done], queue)
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
) -> list[tuple[int, Counted]]:
    """Return how many of *ids* a redrive has left as they were, and why."""
    held = operate.key_holders(sorted({*ids} - {*done})) if len(done) < asked else {}
    parts: list[tuple[int, Counted]] = []
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
    return [*parts, (asked - len(done) - len(held), GONE)]


def log_redrive(
    request: HttpRequest, letters: Sequence[Any], queue: str | None
) -> None:
    """Note that *letters* went to *queue*, or back to their own, which is one."""

    def entry(row: Any) -> str:
        names = {"queue": queue or row.queue, "before": row.queue}
        if queue in (None, row.queue):
            return _('Redriven to queue "%(queue)s".') % names
        return _('Redriven to queue "%(queue)s"; it was in "%(before)s".') % names

    log_each(request, letters, entry)


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
    do=on_all(
        lambda rows, by, data: [operate.set_aside(rows, by=by, reason=data["reason"])],
        Outcome(
            ngettext_lazy(
                "%(count)d dead letter was set aside, to the archive.",
                "%(count)d dead letters were set aside, to the archive.",
                "count",
            ),
            lambda data, row: _("Set aside, to the archive: %(reason)s") % data,
        ),
        left=GONE,
    ),
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
    do=on_all(
        lambda rows, by, data: [operate.delete_dead_letters(rows)],
        Outcome(
            ngettext_lazy(
                "%(count)d dead letter was deleted.",
                "%(count)d dead letters were deleted.",
                "count",
            ),
            lambda data, row: _("Deleted."),
            DELETION,
        ),
        left=GONE,
    ),
    form=Confirm,
    warning=gettext_lazy("They are deleted for ever, with their arguments and errors."),
    is_grave=True,
)
