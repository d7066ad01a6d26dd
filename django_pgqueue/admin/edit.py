"""
Edit: the form of other arguments for a job that waits or gave up.

The form shows the stored JSON, secrets too, so it is for those who may see payloads and
edit. Arguments that nobody changed stay as they are stored. Two people who
edit the same job, or a worker that takes it meanwhile, cannot overwrite each other: the
row is locked, and what the form was made from must still be what is stored.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

from django import forms
from django.apps import apps
from django.contrib.auth import get_permission_codename
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare, salted_hmac
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import payload
from django_pgqueue.bounds import PULL_TASK
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.payload import TAG

VIEW_PAYLOAD = "view_payload"

NEEDS_PAYLOAD = _(
    "The form shows all arguments, secrets too, so editing needs the permission "
    "pgqueue.view_payload as well."
)

# Names of changed arguments in a log entry.
CHANGED_NAMES_MAX = 20

# Lines of a field of the form; what is longer scrolls.
FIELD_LINES_LEAST, FIELD_LINES_MOST = 4, 24

NOT_THERE = object()


class JsonField(forms.CharField):
    """A value, as people write JSON."""

    widget = forms.Textarea({"spellcheck": "false"})

    def clean(self, value: Any) -> Any:
        """Return the value."""
        text = super().clean(value)
        try:
            return read_json(text)
        except ValueError as error:
            raise ValidationError("%(error)s", params={"error": error}) from None


def fit_lines(field: forms.Field, text: str) -> None:
    """Make the area of a *field* as high as *text*, within limits."""
    lines = text.count("\n") + 2
    rows = min(max(lines, FIELD_LINES_LEAST), FIELD_LINES_MOST)
    field.widget.attrs["rows"] = rows


class ArgumentsForm(forms.Form):
    """The arguments of one job, as JSON."""

    args = JsonField(label=_("Positional arguments"), help_text=_("A JSON array."))
    kwargs = JsonField(label=_("Keyword arguments"), help_text=_("A JSON object."))
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
            fit_lines(self.fields[name], initial[name])

    def clean_args(self) -> list[Any]:
        """Return the positional arguments."""
        value = self.cleaned_data["args"]
        if not isinstance(value, list):
            raise ValidationError(_("This must be a JSON array: [ … ]"))
        if self._task == PULL_TASK and len(value) != 1:
            raise ValidationError(_("A message has one payload, in brackets: [ … ]"))
        return value

    def clean_kwargs(self) -> dict[str, Any]:
        """Return the keyword arguments, likewise."""
        value = self.cleaned_data["kwargs"]
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
        return gettext("what could not be read before")
    more = "" if len(names) <= CHANGED_NAMES_MAX else ", …"
    return ", ".join(names[:CHANGED_NAMES_MAX]) + more


# References to rows ------------------------------------------------------------------


def refused_model(request: HttpRequest, given: Any, stored: str) -> str | None:
    """
    Return the model that *given* refers to anew and the user may not view, or None.

    Args:
        request: Of the user.
        given: Arguments as JSON has them.
        stored: The text of those that are replaced.
    """
    before = {_reference_key(found) for found in _references(_read_stored(stored))}
    for found in _references(given):
        if _reference_key(found) not in before and not _may_refer(
            request, found.get("value")
        ):
            return str(found.get("value"))
    return None


def _may_refer(request: HttpRequest, label: Any) -> bool:
    try:
        options = apps.get_model(label)._meta
    except (AttributeError, LookupError, TypeError, ValueError):
        return True  # There is no such model, and so no row; the edit says so.
    codename = get_permission_codename("view", options)
    return request.user.has_perm(f"{options.app_label}.{codename}")


def _references(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the references in JSON, however deep; within messages too."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            if item.get(TAG) == "model":
                yield item
            left += item.values()
        elif isinstance(item, list):
            left += item


def _reference_key(reference: dict[str, Any]) -> str:
    return json.dumps(reference, sort_keys=True)


def _read_stored(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
