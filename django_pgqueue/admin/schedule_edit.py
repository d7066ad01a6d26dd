"""New and edit: schedules that users make, and what they change of declared ones."""

from __future__ import annotations

import json
from typing import Any, cast

from django.contrib import messages
from django.contrib.admin.models import ADDITION
from django.db.models import Field
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
)
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import Button, log, may, who
from django_pgqueue.admin.cells import Difference
from django_pgqueue.admin.edit import NEEDS_PAYLOAD, VIEW_PAYLOAD, signature_of
from django_pgqueue.admin.read_only import limited
from django_pgqueue.admin.redaction import redact_json
from django_pgqueue.admin.run_permissions import may_call
from django_pgqueue.admin.schedule_form import ScheduleForm, is_plain, preview
from django_pgqueue.models import Schedule
from django_pgqueue.schedules import operate
from django_pgqueue.schedules.definition import Definition
from django_pgqueue.schedules.store import COLUMNS, database_now, is_same
from django_pgqueue.tasks import database
from django_pgqueue.tasks.registry import declared_names
from django_pgqueue.timetable.zones import zone_names

ADD = ("add_schedule",)
# The form shows what the schedule carries, secrets too.
CHANGE = ("change_schedule", VIEW_PAYLOAD)

SAVE, PREVIEW = "save", "preview"
SUBMITS = [(SAVE, gettext_lazy("Save")), (PREVIEW, gettext_lazy("Preview"))]

POLICIES = ("one", "skip", "all(10)")


class ScheduleForms(ActingAdmin):
    """The page of schedules, with the forms that make and change one."""

    def get_urls(self) -> list[URLPattern]:
        """Add the forms; that of a new one before whatever takes any text for an id."""
        new = self.own_url("new", self._new, ADD, of_row=False)
        return [new, self.own_url("edit", self._edit, CHANGE[:1]), *super().get_urls()]

    def buttons(self, request: HttpRequest, row: Any) -> list[Button]:
        """Offer to edit it."""
        offered = super().buttons(request, row)
        if may(request, *CHANGE):
            edit = Button(
                url=self.act_url(request, "edit", row),
                label=_("Edit") if row.source == "user" else _("Change here"),
                help=""
                if row.source == "user"
                else _("It holds instead of what code declares, until it is reset."),
                is_post=False,
            )
            offered.insert(1, edit)
        return offered

    # New ---------------------------------------------------------------------------

    def _new(self, request: HttpRequest) -> HttpResponse:
        form = ScheduleForm(None, request.POST if request.method == "POST" else None)
        with limited():
            context = self._form_context(request, form)
            if form.is_bound and SAVE in request.POST and form.is_valid():
                made = self._add(request, form)
                if made is not None:
                    return self._to_row(made)
            context |= {
                "title": _("New schedule"),
                "told": _(
                    "Whoever may add schedules can let any declared task run with any "
                    "arguments, and any message be published."
                ),
                "back": self.list_url(request),
            }
        return TemplateResponse(request, "admin/pgqueue/schedule_form.html", context)

    def _add(self, request: HttpRequest, form: ScheduleForm) -> int | None:
        definition = form.definition
        assert definition is not None
        self._check(request, definition)
        made = operate.add(definition, by=who(request))
        if made is None:
            form.add_error("name", _("There is a schedule of this name already."))
            return None
        row = self.get_queryset(request).only("name").get(pk=made)
        made_for = (
            _("Made, for the task %(task)s.") % {"task": definition.task}
            if definition.message_name is None
            else _("Made, for the message %(name)s.")
            % {"name": definition.message_name}
        )
        log(request, [row], made_for, flag=ADDITION)
        text = _("The schedule %(name)s was made.")
        messages.success(request, text % {"name": definition.name})
        return made

    # Edit --------------------------------------------------------------------------

    def _edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        if not may(request, VIEW_PAYLOAD):
            messages.error(request, NEEDS_PAYLOAD)
            return HttpResponseRedirect(self._url(self.model, "change", object_id))
        with limited():
            return self._edit_row(request, object_id)

    def _edit_row(self, request: HttpRequest, object_id: str) -> HttpResponse:
        is_post = request.method == "POST"
        texts = {
            "args_text": "args",
            "kwargs_text": "kwargs",
            "message_text": "message_payload",
        }
        rows = self.get_queryset(request).defer(*texts.values(), "declared")
        row = self.row_to_edit(rows, object_id, is_locked=is_post, **texts)
        if row is None:
            return self.elsewhere(request, object_id)
        if not is_plain(row):
            text = _(
                "Its arguments cannot be shown in a form: they are too long, or of "
                "both kinds, or none that Python can read."
            )
            messages.warning(request, text)
            return self._to_row(row.pk)
        form = ScheduleForm(row, request.POST if is_post else None)
        context = self._form_context(request, form, row)
        if is_post and SAVE in request.POST and form.is_valid():
            return self._change(request, row, form)
        context |= {
            "title": _("Edit %(row)s") % {"row": row}
            if row.source == "user"
            else _("Change %(row)s here") % {"row": row},
            "told": ""
            if row.source == "user"
            else _(
                "Code declares this schedule. What is saved here holds instead, also "
                "after the next deploy, until it is reset to code."
            ),
            "original": row,
            "hint": None if row.message_name else signature_of(row.task) or None,
            "back": self._url(self.model, "change", row.pk),
        }
        return TemplateResponse(request, "admin/pgqueue/schedule_form.html", context)

    def _change(
        self, request: HttpRequest, row: Any, form: ScheduleForm
    ) -> HttpResponse:
        assert form.definition is not None
        self._check(request, form.definition)
        # The row is locked, and its revision that of the form.
        changed = operate.change(
            form.definition, revision=row.revision, by=who(request)
        )
        if changed:
            # Names and no values: a history is shown without view_payload.
            log(request, [row], _("Edited: %s") % ", ".join(changed))
            messages.success(request, _("The schedule was stored."))
        else:
            messages.warning(request, _("Nothing was stored: nothing was changed."))
        return self._to_row(row.pk)

    # Both --------------------------------------------------------------------------

    def _check(self, request: HttpRequest, definition: Definition) -> None:
        """Refuse a pipeline job that takes out what the user may not view."""
        given = definition.args, definition.kwargs
        self.require(request, may_call(request, definition.task, *given))

    def _form_context(
        self, request: HttpRequest, form: ScheduleForm, row: Any = None
    ) -> dict[str, Any]:
        """Return what the form's page shows; a form that was sent has been read."""
        with database.cursor() as cursor:
            now = database_now(cursor)
        shown = None
        if form.is_bound:
            if form.is_valid():
                shown = form.preview(now)
        elif row is not None:
            shown = preview(row, now)
        return {
            **self.page_context(request),
            "form": form,
            "hidden": [],
            "submits": SUBMITS,
            "preview": shown,
            "task_names": declared_names(),
            "zone_names": zone_names(),
            "policies": POLICIES,
        }

    def _to_row(self, key: int) -> HttpResponse:
        return HttpResponseRedirect(self._url(self.model, "change", key))


NOTHING = "-"


def drift(row: Any, *, may_see: bool) -> list[Difference]:
    """
    Return what differs from what code declares.

    Args:
        row: Of the page of a schedule, with declared_text, and args_raw, kwargs_raw
            and message_payload_raw.
        may_see: Whether arguments may be shown.
    """
    if row.declared_text is None or row.overridden_at is None:
        return []
    try:
        said = json.loads(row.declared_text)
        here = {
            "args": json.loads(row.args_raw),
            "kwargs": json.loads(row.kwargs_raw),
            "message_payload": json.loads(row.message_payload_raw or "null"),
            "message_key": row.message_key,
        }
    except (ValueError, RecursionError):
        return []
    found = []
    for column in COLUMNS:
        holds = here[column] if column in here else getattr(row, column)
        if is_same(said.get(column), holds):
            continue
        is_hidden = column in here and not may_see
        task = (said.get("task"), row.task) if column == "args" else (None, None)
        found.append(
            Difference(
                label=_label(column),
                declared="" if is_hidden else _value(said.get(column), task[0]),
                here="" if is_hidden else _value(holds, task[1]),
                is_hidden=is_hidden,
            )
        )
    return found


def _value(value: Any, task: str | None) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, (list, dict)):
        return redact_json(json.dumps(value, ensure_ascii=False), task=task)
    return str(value)


def _label(column: str) -> str:
    field = cast("Field[Any, Any]", Schedule._meta.get_field(column))
    return str(field.verbose_name)
