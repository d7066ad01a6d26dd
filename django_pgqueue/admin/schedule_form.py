"""
The form of a schedule: all that code can declare, for one that a user makes or changes.

define() checks it, and what it refuses is shown at the field that it is about.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, tzinfo
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Field
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from django_pgqueue.admin import moments, payload
from django_pgqueue.admin.cells import Difference
from django_pgqueue.admin.edit import JsonField, fit_lines
from django_pgqueue.admin.payload import redact_json
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import EnqueueError, ScheduleError, TopicError
from django_pgqueue.log.names import KEY_CHARACTERS_MAX, MESSAGE_NAME_CHARACTERS_MAX
from django_pgqueue.models import Schedule
from django_pgqueue.models.schedule import Overlap
from django_pgqueue.operators import human
from django_pgqueue.options.durations import as_timedelta
from django_pgqueue.schedules.definition import (
    NAME_CHARACTERS_MAX,
    OVERLAPS,
    Definition,
    default_zone,
    define,
)
from django_pgqueue.schedules.store import COLUMNS, is_same
from django_pgqueue.schedules.timetables import next_ticks, timetable
from django_pgqueue.timetable.expression import CHARACTERS_MAX as EXPRESSION_MAX
from django_pgqueue.timetable.ticks import Shift, shift
from django_pgqueue.timetable.zones import find_zone
from django_pgqueue.topics.publish import message

# Ticks to come that a page shows.
SHOWN_TICKS = 5


def zone_of(row: Any) -> tzinfo:
    """Return the zone of a schedule's row; UTC, where it is none."""
    try:
        return find_zone(row.tz)
    except ScheduleError:
        return UTC


def preview(row: Any, now: datetime) -> dict[str, Any] | None:
    """
    Return the next ticks of a row or a definition; None: unreadable.

    Args:
        row: With expression, every_seconds and tz.
        now: By the database's clock.
    """
    try:
        table = timetable(row.expression, row.every_seconds, row.tz)
    except ScheduleError:
        return None
    now = human.in_utc(now)
    zone = zone_of(row)
    due = list(next_ticks(table, now, SHOWN_TICKS))
    has_seconds = any(tick.second for tick in due)
    ticks = [
        # By the schedule's clock, by that of UTC, and what a change of clocks does.
        (
            tick,
            moments.by_clock(tick, zone, has_seconds=has_seconds),
            moments.by_clock(tick, UTC, has_seconds=has_seconds),
            _note(shift(table, tick)),
        )
        for tick in due
    ]
    return {
        "when": human.timetable(row),
        "tz": row.tz,
        "ticks": ticks,
        "now": now,
        "has_notes": any(note for *_times, note in ticks),
    }


def reckoned(row: Any) -> datetime | None:
    """Return when a row without a next tick is due, as the scheduler will reckon it."""
    try:
        table = timetable(row.expression, row.every_seconds, row.tz)
    except ScheduleError:
        return None
    after = [row.ticks_from, *([row.last_tick] if row.last_tick else [])]
    return table.next_after(max(map(human.in_utc, after)))


def _note(mark: Shift | None) -> Any:
    if mark is None:
        return ""
    if mark.kind == "first":
        return _("The clock shows this time twice: the first one.")
    if mark.kind == "second":
        return _("The clock shows this time twice: the second one.")
    if mark.collapsed == 1:
        return _("The clock skips its time: right after that.")
    return ngettext(
        "The clock skips its time: %(count)d tick is one.",
        "The clock skips their times: %(count)d ticks are one.",
        mark.collapsed,
    ) % {"count": mark.collapsed}


# Fields that are not called as the part of a schedule that they are.
FIELDS = {"every_seconds": "every"}

# The largest unit that a period fills without a rest.
UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))

PLAIN = {"spellcheck": "false", "autocomplete": "off"}


def _text(label: Any, help_text: Any, *, most: int = 255, **attrs: str) -> Any:
    return forms.CharField(
        label=label,
        help_text=help_text,
        max_length=most,
        required=False,
        empty_value="",
        widget=forms.TextInput({**PLAIN, **attrs}),
    )


class ScheduleForm(forms.Form):
    """A schedule that a user makes."""

    name = _text(_("Name"), _("Of the schedule."), most=NAME_CHARACTERS_MAX)
    task = _text(
        _("Task"),
        _("The name of a declared task; begin to write to choose one."),
        list="pgqueue-tasks",
    )
    message = _text(
        _("Or message"),
        _(
            "What is published instead of enqueueing a task, such as "
            "cronjobs.nightly; the part before the first dot is its topic."
        ),
        most=MESSAGE_NAME_CHARACTERS_MAX,
    )
    key = _text(
        _("Key"),
        _("Of the message: those of one key keep their order."),
        most=KEY_CHARACTERS_MAX,
    )
    args = JsonField(
        label=_("Arguments"),
        help_text=_(
            "JSON: an object of keyword arguments, or an array of positional ones; of "
            "a message its payload, any JSON."
        ),
    )
    expression = _text(
        _("Cron expression"),
        _(
            "Minute, hour, day, month, day of the week; with six fields, seconds "
            "first. Or @hourly, @daily, @weekly, @monthly, @yearly."
        ),
        most=EXPRESSION_MAX,
        placeholder="0 3 * * *",
    )
    every = _text(
        _("Or every"),
        _("A period instead, whatever clocks are put to: 15s, 5m, 6h, 7d."),
        most=20,
    )
    tz = _text(
        _("Time zone"),
        _("Whose clock the cron expression is for; begin to write."),
        most=100,
        list="pgqueue-zones",
    )
    catch_up = _text(
        _("Catch up"),
        _(
            "Of ticks that nobody was there to issue: skip them; make up for the "
            "latest one; or for all(N), the latest N."
        ),
        most=10,
        list="pgqueue-policies",
    )
    overlap = forms.ChoiceField(
        label=_("Overlap"),
        help_text=_(
            "A tick while a job of an earlier one is not done: skip it, or queue it. A "
            "message is published in any case."
        ),
        choices=[(value, Overlap(value).label) for value in OVERLAPS],
    )
    jitter = _text(
        _("Jitter"),
        _("Its jobs are due up to so much later: 0s to 1d."),
        most=20,
    )
    queue = _text(_("Queue"), _("Empty: the task's."), most=63)
    priority = forms.IntegerField(
        label=_("Priority"),
        help_text=_("-100 to 100; empty: the task's."),
        required=False,
    )
    # What the form was made from.
    revision = forms.IntegerField(widget=forms.HiddenInput, required=False)

    def __init__(self, row: Any = None, data: Any = None) -> None:
        """Make the form of a new schedule, or of *row*, read with its arguments."""
        self._row = row
        # Set by clean(), where all is right.
        self.definition: Definition | None = None
        initial = self._initial(row)
        super().__init__(data, initial=initial)
        if row is not None:
            del self.fields["name"]
        fit_lines(self.fields["args"], initial["args"])

    def _initial(self, row: Any) -> dict[str, Any]:
        if row is None:
            return {
                "args": "{}",
                "catch_up": "one",
                "overlap": "skip",
                "jitter": "0s",
                "tz": _zone_to_begin_with(),
            }
        is_args = row.kwargs_text == "{}" and row.args_text != "[]"
        text = row.args_text if is_args else row.kwargs_text
        if row.message_name is not None:
            text = row.message_text or "null"
        return {
            "task": row.task,
            "message": row.message_name or "",
            "key": row.message_key or "",
            "args": payload.laid_out(text),
            "expression": row.expression or "",
            "every": duration(row.every_seconds),
            "tz": row.tz,
            "catch_up": row.catch_up,
            "overlap": row.overlap,
            "jitter": duration(row.jitter_seconds) or "0s",
            "queue": row.queue or "",
            "priority": row.priority,
            "revision": row.revision,
        }

    def clean_args(self) -> Any:
        """Return the arguments."""
        value = self.cleaned_data["args"]
        if not self.cleaned_data.get("message") and not isinstance(value, (dict, list)):
            raise ValidationError(
                _("This must be a JSON object or array: { … } or [ … ]")
            )
        return value

    def clean_every(self) -> int | None:
        """Return the period in seconds."""
        return _seconds(self.cleaned_data["every"], "every")

    def clean(self) -> dict[str, Any]:
        """Check all of it as a declaration is checked."""
        cleaned = super().clean() or {}
        if self._row is not None and cleaned.get("revision") != self._row.revision:
            raise ValidationError(
                _(
                    "Somebody has changed this schedule since the form was opened, so "
                    "nothing was stored. Open it again."
                )
            )
        if self.errors:
            return cleaned
        try:
            self.definition = define(
                name=cleaned["name"] if self._row is None else self._row.name,
                **self._subject(cleaned),
                expression=cleaned["expression"] or None,
                every_seconds=cleaned["every"],
                tz=cleaned["tz"],
                catch_up=cleaned["catch_up"],
                jitter=cleaned["jitter"] or 0,
                queue=cleaned["queue"] or None,
                priority=cleaned["priority"],
                payload_bytes_max=get_settings().payload_bytes_max,
            )
        except TopicError as error:
            self.add_error("message", ValidationError("%(e)s", params={"e": error}))
        except EnqueueError as error:
            self.add_error("args", ValidationError("%(e)s", params={"e": error}))
        except ScheduleError as error:
            field = FIELDS.get(error.part or "", error.part)
            self.add_error(
                field if field in self.fields else None,
                ValidationError("%(error)s", params={"error": error}),
            )
        return cleaned

    def _subject(self, cleaned: dict[str, Any]) -> dict[str, Any]:
        """Return what the schedule does, as define() takes it."""
        if not cleaned["message"]:
            if cleaned["key"]:
                raise ScheduleError(
                    "A key is of a message: leave it empty, or name the message.",
                    part="key",
                )
            return {name: cleaned[name] for name in ("task", "args", "overlap")}
        made = message(cleaned["message"], cleaned["args"], key=cleaned["key"] or None)
        return {"task": cleaned["task"], "publication": made}

    def preview(self, now: datetime) -> dict[str, Any] | None:
        """Return when the schedule of a form that is right is due; refuse: never."""
        if self.definition is None:
            return None
        shown = preview(self.definition, now)
        if shown is None or not shown["ticks"]:
            self.add_error("expression", _("No tick comes any more."))
        return shown


def duration(seconds: int | None) -> str:
    """Return *seconds* as the form reads them: 15s, 5m, 6h, 7d; nothing stays ""."""
    if not seconds:
        return ""
    size, unit = next(pair for pair in UNITS if seconds % pair[0] == 0)
    return f"{seconds // size}{unit}"


def is_plain(row: Any) -> bool:
    """Return whether the form can show the arguments of *row*: of one kind, and all."""
    longest = max(len(row.args_text), len(row.kwargs_text), len(row.message_text or ""))
    if longest > payload.CHARACTERS_MAX:
        return False
    texts = [row.args_text, row.kwargs_text]
    if row.message_name is not None:
        texts = [row.message_text or "null"]
    try:
        values = [json.loads(text) for text in texts]
    except (ValueError, RecursionError):
        return False
    if row.message_name is not None:
        return True
    args, kwargs = values
    is_right = isinstance(args, list) and isinstance(kwargs, dict)
    return is_right and not (args and kwargs)


def _seconds(text: str, name: str) -> int | None:
    if not text:
        return None
    try:
        value = as_timedelta(
            int(text) if text.isascii() and text.isdecimal() else text, name=name
        ).total_seconds()
    except ValueError as error:
        raise ValidationError("%(error)s", params={"error": error}) from None
    if not value.is_integer():
        raise ValidationError(_("A period has whole seconds."))
    return int(value)


def _zone_to_begin_with() -> str:
    try:
        return default_zone()
    except ScheduleError:
        return "UTC"


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
