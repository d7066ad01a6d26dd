"""
Edit: other arguments for a job that waits or gave up.

The form shows the stored JSON, secrets too, so it is for those who may see payloads and
edit. Arguments that nobody changed stay as they are stored. Two people who
edit the same job, or a worker that takes it meanwhile, cannot overwrite each other: the
row is locked, and what the form was made from must still be what is stored.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import quote
from django.core.exceptions import ValidationError
from django.db import IntegrityError
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
)
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.crypto import constant_time_compare, salted_hmac
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgqueue.admin import payload
from django_pgqueue.admin.acts import Button, log, may, who
from django_pgqueue.admin.job_columns import JobAdminColumns
from django_pgqueue.admin.mail import may_see_arguments
from django_pgqueue.admin.model_references import refused_model
from django_pgqueue.admin.read_only import limited
from django_pgqueue.admin.run_permissions import may_call
from django_pgqueue.bounds import PULL_TASK
from django_pgqueue.exceptions import (
    InvalidArgument,
    JobNotFound,
    PayloadTooLarge,
    WrongState,
)
from django_pgqueue.tasks import operate, registry

PERMISSION, VIEW_PAYLOAD = "edit", "view_payload"

NEEDS_PAYLOAD = gettext_lazy(
    "The form shows all arguments, secrets too, so editing needs the permission "
    "pgqueue.view_payload as well."
)

# Names of changed arguments in a log entry.
CHANGED_NAMES_MAX = 20

# Lines of a field of the form; what is longer scrolls.
FIELD_LINES_LEAST, FIELD_LINES_MOST = 4, 24

SAVE, SAVE_AND_REDRIVE = "save", "redrive"

NOT_THERE = object()


class ArgumentsForm(forms.Form):
    """The arguments of one job, as JSON."""

    args = forms.CharField(
        label=gettext_lazy("Positional arguments"),
        help_text=gettext_lazy("A JSON array."),
        widget=forms.Textarea({"spellcheck": "false"}),
    )
    kwargs = forms.CharField(
        label=gettext_lazy("Keyword arguments"),
        help_text=gettext_lazy("A JSON object."),
        widget=forms.Textarea({"spellcheck": "false"}),
    )
    # What the form was made from.
    seen = forms.CharField(widget=forms.HiddenInput, required=False)

    def __init__(self, row: Any, data: Any = None) -> None:
        self._task = row.task
        self._seen = salted_hmac(
            __name__, f"{row.args_text}\n{row.kwargs_text}", algorithm="sha256"
        ).hexdigest()
        initial = {
            "args": payload.laid_out(row.args_text),
            "kwargs": payload.laid_out(row.kwargs_text),
            "seen": self._seen,
        }
        super().__init__(data, initial=initial)
        for name in ("args", "kwargs"):
            lines = initial[name].count("\n") + 2
            rows = min(max(lines, FIELD_LINES_LEAST), FIELD_LINES_MOST)
            self.fields[name].widget.attrs["rows"] = rows

    def clean_args(self) -> list[Any]:
        """Return the positional arguments."""
        value = self._value("args")
        if not isinstance(value, list):
            raise ValidationError(_("This must be a JSON array: [ … ]"))
        if self._task == PULL_TASK and len(value) != 1:
            raise ValidationError(_("A message has one payload, in brackets: [ … ]"))
        return value

    def clean_kwargs(self) -> dict[str, Any]:
        """Return the keyword arguments, likewise."""
        value = self._value("kwargs")
        if not isinstance(value, dict):
            raise ValidationError(_("This must be a JSON object: { … }"))
        if self._task == PULL_TASK and value:
            raise ValidationError(_("A message has none of these: write {}."))
        return value

    def clean(self) -> dict[str, Any]:
        """Refuse what was made from other arguments than those that are stored."""
        cleaned = super().clean() or {}
        if not constant_time_compare(cleaned.get("seen", ""), self._seen):
            raise ValidationError(
                _(
                    "Somebody has edited this job since the form was opened, so "
                    "nothing was stored. Open it again."
                )
            )
        return cleaned

    def _value(self, name: str) -> Any:
        try:
            return read_json(self.cleaned_data[name])
        except ValueError as error:
            raise ValidationError("%(error)s", params={"error": error}) from None

    def may_refer(self, request: HttpRequest, row: Any) -> bool:
        """Refuse references to rows that the user could not look at."""
        given = {name: self.cleaned_data[name] for name in ("args", "kwargs")}
        for name, value in given.items():
            model = refused_model(request, value, getattr(row, f"{name}_text"))
            if model is not None:
                problem = _("It refers to a row of %(model)s, which you may not view.")
                self.add_error(name, ValidationError(problem, params={"model": model}))
        return not self.errors

    def refuse(self, error: Exception) -> None:
        """Show what enqueuing would have raised, at the field that it is about."""
        path = getattr(error, "path", "")
        field = next((f for f in ("kwargs", "args") if path.startswith(f)), None)
        self.add_error(
            None if path == "arguments" else field,
            ValidationError("%(error)s", params={"error": error}),
        )


class EditableAdmin(JobAdminColumns):
    """A page of jobs whose arguments can be edited."""

    # What the form can do, besides saving: the permissions of each.
    edit_submits: ClassVar[dict[str, tuple[Any, Sequence[str]]]] = {
        SAVE: (gettext_lazy("Save"), ())
    }

    def is_editable(self, row: Any) -> bool:
        """Return whether the page of *row* offers to edit it."""
        return True

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the form."""
        return [self.own_url("edit", self._edit, (PERMISSION,)), *super().get_urls()]

    def buttons(self, request: HttpRequest, row: Any) -> list[Button]:
        """Offer the form."""
        offered = super().buttons(request, row)
        is_permitted = may(request, PERMISSION, VIEW_PAYLOAD) and may_see_arguments(
            request, row
        )
        if is_permitted and self.is_editable(row):
            edit = Button(
                url=self.act_url(request, "edit", row),
                label=_("Edit arguments"),
                help=_("Checked against the signature of the task."),
                is_post=False,
            )
            offered.insert(1, edit)
        return offered

    def _edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        submits = {
            name: label
            for name, (label, needed) in self.edit_submits.items()
            if may(request, *needed)
        }
        asked = next((name for name in self.edit_submits if name in request.POST), SAVE)
        self.require(request, asked in submits)
        if not may(request, VIEW_PAYLOAD):
            messages.error(request, NEEDS_PAYLOAD)
            return HttpResponseRedirect(self._url(self.model, "change", object_id))
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
        context = {
            **self.page_context(request),
            "title": _("Edit the arguments of %(row)s") % {"row": row},
            "original": row,
            "form": form,
            "hint": signature_of(row.task),
            "submits": list(submits.items()),
            "back": self._url(self.model, "change", quote(row.pk)),
        }
        return TemplateResponse(request, "admin/pgqueue/form.html", context)

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
        return HttpResponseRedirect(self._url(self.model, "change", quote(row.pk)))

    def redrive_edited(self, request: HttpRequest, row: Any) -> HttpResponse:
        """Send the edited *row* back to its queue, in the same transaction."""
        raise NotImplementedError


def read_json(text: str) -> Any:
    """
    Return the value of JSON *text*, as people write it.

    Raises:
        ValueError: It is none, a key stands twice in an object, or a number is none
            that JSON has.
    """
    try:
        return json.loads(
            text, object_pairs_hook=_without_twins, parse_constant=_refused_constant
        )
    except RecursionError:
        raise ValueError("This is nested too deeply.") from None


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _value in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"The key {twin!r} stands twice in one object.")
    return value


def _refused_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number that JSON has.")


def is_too_long(row: Any) -> bool:
    """Return whether the arguments of *row* were cut when they were read."""
    longest = max(len(row.args_text), len(row.kwargs_text))
    return longest > payload.CHARACTERS_MAX


def signature_of(name: str) -> str:
    """Return how the declared task is called; "" when there is none of that name."""
    if name == PULL_TASK:
        return f"{name}(payload)"
    task = registry.tasks.get(name)
    if task is None:
        return ""
    parameters = task.call_signature.parameters.values()
    return f"{name}{inspect.Signature(list(parameters))}"


def is_other(text: str, value: Any) -> bool:
    """Return whether *value* is another one than JSON *text* has."""
    try:
        return json.dumps(json.loads(text)) != json.dumps(value)
    except (ValueError, RecursionError):
        return True


def changed(
    row: Any, args: list[Any] | None = None, kwargs: dict[str, Any] | None = None
) -> str:
    """Return the names of the arguments that differ from those of *row*, no values."""
    names: list[str] = []
    try:
        if args is not None:
            old = json.loads(row.args_text)
            names += [
                f"args[{place}]"
                for place in range(max(len(old), len(args)))
                if old[place : place + 1] != args[place : place + 1]
            ]
        if kwargs is not None:
            was = json.loads(row.kwargs_text)
            names += [
                name
                for name in sorted({*was, *kwargs})
                if was.get(name, NOT_THERE) != kwargs.get(name, NOT_THERE)
            ]
    except (ValueError, RecursionError):
        return _("what could not be read before")
    more = "" if len(names) <= CHANGED_NAMES_MAX else ", …"
    return ", ".join(names[:CHANGED_NAMES_MAX]) + more
