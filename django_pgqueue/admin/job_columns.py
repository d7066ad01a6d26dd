"""What pages of jobs share, be they in the queue, the archive or dead letters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.db import IntegrityError
from django.db.models import QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Left
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import mail, moments, payload
from django_pgqueue.admin.acting import LOOKS, ActingAdmin, column, limited
from django_pgqueue.admin.acts import Act, log, may, who
from django_pgqueue.admin.chart import read_progress
from django_pgqueue.admin.edit import (
    NEEDS_PAYLOAD,
    VIEW_PAYLOAD,
    ArgumentsForm,
    changed,
    is_other,
    is_too_long,
    signature_of,
)
from django_pgqueue.admin.keyset_list import FilterForm
from django_pgqueue.admin.mail import may_see_arguments
from django_pgqueue.admin.run_permissions import may_call
from django_pgqueue.exceptions import (
    InvalidArgument,
    JobNotFound,
    PayloadTooLarge,
    WrongState,
)
from django_pgqueue.models import Message, Schedule, Workflow
from django_pgqueue.models.job import LiveState
from django_pgqueue.operators.human import HEADER, reprocessed_at
from django_pgqueue.operators.lanes import kind_of_job
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.queues import output
from django_pgqueue.queues.find import tagged
from django_pgqueue.tasks import database, operate

# On a page.
VALUES_SHOWN = 20
CHARACTERS_MAX = 1_000


def emitted(row: Any) -> list[tuple[str, Any, str]]:
    """
    Return what a job has emitted latest, in its order, by one query.

    Of each attempt its number, when it has emitted the last of it, and a value on a
    line, redacted.
    """
    with database.cursor() as cursor:
        found = output.latest(
            cursor,
            row.pk,
            limit=VALUES_SHOWN,
            characters=payload.CHARACTERS_MAX + 1,
        )
    deliveries = (list(each) for _, each in groupby(found, lambda it: it.delivery))
    return [
        (
            str(rows[-1].attempt),
            moments.full(rows[-1].emitted_at, row.clock),
            "\n".join(_shown(each.value) for each in rows),
        )
        for rows in deliveries
    ]


def _shown(text: str) -> str:
    value = payload.payload("", text, characters_max=CHARACTERS_MAX)
    return f"{value.text} …" if value.is_cut else value.text


# Characters of the tags of a job, as JSON: 20 tags of 63 characters, and more.
TAGS_CHARACTERS_MAX = 2_000


# Rows of a tag that are looked up one by one; of more, the latest are looked through.
TAGGED_ROWS_MAX = 2_000


def tags_of(row: Any) -> list[str]:
    """Return the tags of a row that was read with them."""
    try:
        tags = json.loads(row.tags_text or "[]")
    except (ValueError, RecursionError):
        return []
    return [str(tag) for tag in tags] if isinstance(tags, list) else []


def tag_links(row: Any) -> SafeString | str:
    """Return the tags of a row as links within its list."""
    return format_html_join(
        " ", "{}", ((_filter_link("tag", t),) for t in tags_of(row))
    )


def _filter_link(field: str, value: str) -> SafeString:
    return format_html(
        '<a class="pgqueue-name pgqueue-{}" href="?{}">{}</a>',
        field,
        urlencode({field: value}),
        value,
    )


SAVE, SAVE_AND_REDRIVE = "save", "redrive"

EDIT = Act(
    name="edit",
    permissions=("edit",),
    label=_("Edit arguments"),
    help=_("Checked against the signature of the task."),
    view="edit",
    # What runs was read already.
    offered=lambda row: getattr(row, "state", None) != LiveState.RUNNING,
)


def _kind_of_lane(row: Any) -> str:
    terms = row.lane_capacity, row.lane_spacing, row.lane_policy
    return kind_of_job(row.lane, row.task, *terms)


class JobAdminColumns(ActingAdmin):
    """A page whose rows are jobs."""

    named_by: ClassVar[tuple[str, ...]] = ("task", "queue")
    payload_columns: ClassVar[tuple[str, ...]] = (
        "args",
        "kwargs",
        "headers",
        "progress",
    )

    hidden_columns = ("errors",)
    # The tags, and nothing else of the headers.
    computed = {
        "tags_text": Left(
            Cast(KeyTransform("tags", "headers"), TextField()), TAGS_CHARACTERS_MAX
        )
    }
    # What the form that edits arguments can do, and the permissions of each.
    edit_submits: ClassVar[dict[str, tuple[Any, Sequence[str]]]] = {
        SAVE: (_("Save"), ())
    }
    key_columns = ("dedup_key", "queued_key", "accumulate_key", "lane")

    # What is read --------------------------------------------------------------

    def few_rows(self, filter_form: FilterForm) -> list[int] | None:
        """Return the rows that have the tag that is asked for, unless they are many."""
        tag = filter_form.given("tag")
        if not tag:
            return None
        with (
            limited(Plans.BY_INDEX),
            database.cursor() as cursor,
        ):
            return tagged(
                cursor,
                table=self.model._meta.db_table,
                tag=tag,
                limit=TAGGED_ROWS_MAX,
            )

    def detail_rows(self, request: HttpRequest) -> QuerySet[Any]:
        """Add the errors as text, and when a rule has redriven the job."""
        errors = payload.as_text("errors", payload.ERRORS_CHARACTERS_MAX)
        rows = super().detail_rows(request)
        shown: QuerySet[Any] = rows.annotate(
            errors_text=errors, by_rule_text=KeyTextTransform(HEADER, "headers")
        )
        return shown

    # The list ------------------------------------------------------------------

    queue_name = column(_("queue"), lambda row: _filter_link("queue", row.queue))
    tags = column(_("tags"), tag_links)
    attempts = column(_("attempts"), lambda row: f"{row.attempt}/{row.max_attempts}")

    # The page of one job -------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the files of a mail."""
        file = self.own_url(
            "mail-file", self._mail_file, mail.FILE_PERMISSIONS, methods=LOOKS
        )
        return [file, *super().get_urls()]

    def _mail_file(self, request: HttpRequest, object_id: str) -> HttpResponse:
        with limited(Plans.IN_ORDER):
            row = self.named_row(request, object_id)
            if row is None:
                return self.elsewhere(request, object_id)
            if not mail.is_mail(row):
                raise Http404(f"Job {row.pk} is no mail")
            return mail.file_response(row, request.GET.get("part", ""))

    def carried(self, row: Any) -> tuple[str, ...]:
        """Leave out the arguments of a mail, which is shown as one."""
        left = ("args", "kwargs") if mail.is_mail(row) else ()
        return tuple(name for name in super().carried(row) if name not in left)

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Add what happened to the job, and how far it says it is."""
        may_see = payload.may_see(request)
        return {
            "has_timeline": True,
            "now": self.stands(row),
            "failures": payload.failures(
                row.errors_text, clock=row.clock, may_see=may_see
            ),
            "enqueued": moments.full(row.enqueued_at, row.clock),
            "progress": read_progress(row.progress_text) if may_see else None,
            "emitted": emitted(row) if may_see else None,
            "mail": mail.shown(request, row) if may_see and mail.is_mail(row) else None,
            "mail_file_url": self._url(self.model, "mail-file", quote(row.pk)),
        }

    def offers(self, request: HttpRequest, act: Act, row: Any) -> bool:
        """Offer the form that edits to those who may see all that it shows."""
        may_open = act is not EDIT or may_see_arguments(request, row)
        return may_open and super().offers(request, act, row)

    def stands(self, row: Any) -> SafeString:
        """Return the latest thing that is known of the job."""
        raise NotImplementedError

    # What it is and how often it was tried; when it was stored, and what its caller
    # asked for; and what it belongs to.
    fields_of_place = (
        *("id", "task", "queue", "tag_names", "priority", "used_attempts"),
        *("deliveries", "crash_count"),
    )
    fields_of_times = ("enqueued_at", "run_after", "expires_at", "by_rule")
    fields_of_links = (
        *("dedup_key", "waiting_key", "accumulate_key", "lane", "lane_kind"),
        *("parent_id", "workflow", "message", "schedule"),
    )

    tag_names = column(_("tags"), lambda row: ", ".join(tags_of(row)))
    used_attempts = column(
        _("attempts"),
        lambda row: (
            _("%(used)d of %(max)d") % {"used": row.attempt, "max": row.max_attempts}
        ),
    )
    crash_count = column(
        _("crashes"), lambda row: str(row.crashes) if row.crashes else None
    )
    by_rule = column(
        _("redriven by a rule"),
        lambda row: moments.full(reprocessed_at(row.by_rule_text), row.clock),
    )
    # Of a job that has it while it waits, and not while it runs.
    waiting_key = column(
        _("dedup key while it waits"), lambda row: getattr(row, "queued_key", None)
    )
    lane_kind = column(_("kind of lane"), lambda row: row.lane and _kind_of_lane(row))

    @admin.display(description=_("message"))
    def message(self, row: Any) -> str | None:
        """Lead to the message that it was made for."""
        return self.link_to(Message, row.message_id)

    @admin.display(description=_("schedule"))
    def schedule(self, row: Any) -> str | None:
        """Lead to the schedule that has enqueued it."""
        return self.link_to(Schedule, row.schedule_id)

    @admin.display(description=_("workflow"))
    def workflow(self, row: Any) -> str | None:
        """Lead to the workflow whose step the job is, and to that step in it."""
        if row.workflow_id is None:
            return None
        return self.link(Workflow, row.workflow_id, row.workflow_id, q=row.pk)

    # Edit ----------------------------------------------------------------------

    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the form of other arguments, or store what it says."""
        submits = {
            name: label
            for name, (label, needed) in self.edit_submits.items()
            if may(request, *needed)
        }
        asked = next((name for name in self.edit_submits if name in request.POST), SAVE)
        self.require(request, asked in submits)
        if not may(request, VIEW_PAYLOAD):
            messages.error(request, NEEDS_PAYLOAD)
            return self.to_row(object_id)
        try:
            with limited():
                return self._edit_row(request, object_id, asked, submits)
        except IntegrityError as error:
            problem = _("Nothing was stored, since the queue refuses it: %(error)s")
            messages.error(request, problem % {"error": error})
        except (WrongState, JobNotFound) as error:
            messages.warning(request, _("Nothing was stored. %s") % error)
        return HttpResponseRedirect(self.list_url(request))

    def _edit_row(
        self, request: HttpRequest, object_id: str, asked: str, submits: dict[str, Any]
    ) -> HttpResponse:
        is_post = request.method == "POST"
        rows = self.get_queryset(request).only(*self.named_by)
        texts = {"args_text": "args", "kwargs_text": "kwargs"}
        row = self.row_to_edit(rows, object_id, is_locked=is_post, **texts)
        if row is None:
            # It was redriven, say, by somebody else.
            return self.elsewhere(request, object_id)
        self.require(request, may_see_arguments(request, row))
        if is_too_long(row):
            text = _(
                "The arguments are longer than %(max)d characters: too long for a form."
            )
            messages.warning(request, text % {"max": payload.CHARACTERS_MAX})
            return HttpResponseRedirect(self.list_url(request))
        form = ArgumentsForm(row, request.POST if is_post else None)
        if is_post and form.is_valid() and form.may_refer(request, row):
            try:
                return self._store(request, row, form.cleaned_data, asked)
            except (InvalidArgument, PayloadTooLarge) as error:
                form.refuse(error)
        return self.form_page(
            request,
            form,
            title=_("Edit the arguments of %(row)s") % {"row": row},
            original=row,
            hint=signature_of(row.task),
            submits=list(submits.items()),
        )

    def _store(
        self, request: HttpRequest, row: Any, data: dict[str, Any], asked: str
    ) -> HttpResponse:
        new = {
            name: data[name]
            for name in ("args", "kwargs")
            if is_other(getattr(row, f"{name}_text"), data[name])
        }
        self.require(request, may_call(request, row.task, data["args"], data["kwargs"]))
        # What is not given stays as it is stored, to the digit.
        if new:
            operate.edit(row.pk, by=who(request), **new)
            log(request, [row], _("Edited: %s") % changed(row, **new))
        if asked == SAVE_AND_REDRIVE:
            return self.redrive_edited(request, row)
        if new:
            messages.success(request, _("The arguments were stored."))
        else:
            messages.warning(request, _("Nothing was stored: nothing was changed."))
        return self.to_row(row.pk)

    def redrive_edited(self, request: HttpRequest, row: Any) -> HttpResponse:
        """Send the edited *row* back to its queue, in the same transaction."""
        raise NotImplementedError
