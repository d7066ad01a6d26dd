"""What pages of jobs share, be they in the queue, the archive or dead letters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from typing import Any, ClassVar, NamedTuple

from django.contrib.admin.utils import quote
from django.db.models import QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Left
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import mail, moments, payload
from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.cells import name
from django_pgqueue.admin.chart import Progress, read_progress
from django_pgqueue.admin.keyset_list import FilterForm
from django_pgqueue.admin.read_only import Fact, column, limited
from django_pgqueue.models import Message, Schedule, Workflow
from django_pgqueue.operators.human import HEADER, reprocessed_at
from django_pgqueue.operators.lanes import kind_of_job
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.queues import output
from django_pgqueue.queues.find import tagged
from django_pgqueue.tasks import database

# On a page.
VALUES_SHOWN = 20
CHARACTERS_MAX = 1_000


class Attempt(NamedTuple):
    """What one attempt has emitted, a value on a line, redacted."""

    number: str
    until: Any  # When it has emitted the last of it, as HTML.
    text: str


def emitted(row: Any) -> list[Attempt]:
    """Return what a job has emitted latest, in its order, by one query."""
    with database.cursor() as cursor:
        found = output.latest(
            cursor,
            row.pk,
            limit=VALUES_SHOWN,
            characters=payload.CHARACTERS_MAX + 1,
        )
    deliveries = (list(each) for _, each in groupby(found, lambda it: it.delivery))
    return [
        Attempt(
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
    computed: ClassVar[Mapping[str, Any]] = {
        "tags_text": Left(
            Cast(KeyTransform("tags", "headers"), TextField()), TAGS_CHARACTERS_MAX
        )
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

    number = column(_("id"), lambda row: str(row.pk))
    task_name = column(_("task"), lambda row: name(row.task))
    queue_name = column(_("queue"), lambda row: _filter_link("queue", row.queue))
    tags = column(_("tags"), tag_links)
    attempts = column(_("attempts"), lambda row: f"{row.attempt}/{row.max_attempts}")

    # The page of one job -------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the files of a mail."""
        file = self.own_url(
            "mail-file", self._mail_file, mail.FILE_PERMISSIONS, methods=("GET", "HEAD")
        )
        return [file, *super().get_urls()]

    def _mail_file(self, request: HttpRequest, object_id: str) -> HttpResponse:
        key = self._key(object_id)
        with limited(Plans.IN_ORDER):
            row = self.rows_by_key(request, [] if key is None else [key]).get(key)
            if row is None:
                return self.elsewhere(request, object_id)
            if not mail.is_mail(row):
                raise Http404(f"Job {key} is no mail")
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
            "progress": self._progress(row) if may_see else None,
            "emitted": emitted(row) if may_see else None,
            "mail": mail.shown(request, row) if may_see and mail.is_mail(row) else None,
            "mail_file_url": self._url(self.model, "mail-file", quote(row.pk)),
        }

    def stands(self, row: Any) -> SafeString:
        """Return the latest thing that is known of the job."""
        raise NotImplementedError

    def _progress(self, row: Any) -> Progress | None:
        return read_progress(row.progress_text)

    def facts_of_place(self, row: Any) -> list[Fact]:
        """Say what the job is and how often it was tried."""
        return [
            (_("Id"), str(row.pk)),
            (_("Task"), row.task),
            (_("Queue"), row.queue),
            (_("Tags"), ", ".join(tags_of(row))),
            (_("Priority"), str(row.priority)),
            (
                _("Attempts"),
                _("%(used)d of %(max)d")
                % {"used": row.attempt, "max": row.max_attempts},
            ),
            (_("Deliveries"), str(row.deliveries)),
            (_("Crashes"), str(row.crashes) if row.crashes else None),
        ]

    def facts_of_times(self, row: Any) -> list[Fact]:
        """Say when the job was stored, and what its caller asked for."""
        return [
            (_("Enqueued"), moments.full(row.enqueued_at, row.clock)),
            (_("Run after"), moments.full(row.run_after, row.clock)),
            (_("Expires"), moments.full(row.expires_at, row.clock)),
            (
                _("Redriven by a rule"),
                moments.full(reprocessed_at(row.by_rule_text), row.clock),
            ),
        ]

    def facts_of_links(self, row: Any) -> list[Fact]:
        """Say what the job belongs to."""
        said = row.lane_capacity, row.lane_spacing, row.lane_policy
        return [
            (_("Dedup key"), row.dedup_key),
            # Of a job that has it while it waits, and not while it runs.
            (_("Dedup key while it waits"), getattr(row, "queued_key", None)),
            (_("Accumulate key"), row.accumulate_key),
            (_("Lane"), row.lane),
            (_("Kind of lane"), row.lane and kind_of_job(row.lane, row.task, *said)),
            (_("Parent job"), row.parent_id and str(row.parent_id)),
            (_("Workflow"), self._workflow(row)),
            (_("Message"), self.link_to(Message, row.message_id)),
            (_("Schedule"), self.link_to(Schedule, row.schedule_id)),
        ]

    def _workflow(self, row: Any) -> SafeString | str | None:
        """Lead to the workflow whose step the job is, and to that step in it."""
        if row.workflow_id is None:
            return None
        return self.link(Workflow, row.workflow_id, row.workflow_id, q=row.pk)
