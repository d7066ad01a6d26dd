"""The form that runs a pipeline job: its options, each with its default."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.spark.job import (
    OPTION_CHARACTERS_MAX,
    OptionValue,
    PipelineJob,
    check_destinations,
)

# Before the names of options, so that none is taken for a field of our own.
PREFIX = "option-"

# What stands for a default that is none.
NOTHING = "\u2013"

KINDS = {
    str: _("Text."),
    int: _("A whole number."),
    float: _("A number."),
    type(None): _("Text, or nothing."),
}


class RunForm(forms.Form):
    """A field for each option of a pipeline job."""

    def __init__(self, job: PipelineJob, data: Any = None) -> None:
        super().__init__(data)
        self._job = job
        # What was given and is not the default, as the job takes it.
        self.options: dict[str, OptionValue] = {}
        for name, default in job.options.items():
            self.fields[PREFIX + name] = _field(name, default)

    def clean(self) -> dict[str, Any]:
        """Read the options as the pipeline job does; what is wrong is said there."""
        cleaned = super().clean() or {}
        for name, default in self._job.options.items():
            value = cleaned.get(PREFIX + name)
            # A field that was emptied: nothing, where nothing may be; else as it is.
            if value is None or (value == "" and default is None):
                continue
            try:
                read = self._job.read_options({name: value})[name]
            except SparkOptionError as error:
                self.add_error(PREFIX + name, str(error))
                continue
            if read != default:
                self.options[name] = read
        if not self.errors:
            try:
                check_destinations(
                    self._job,
                    self._job.read_options(self.options),
                    get_settings().destinations,
                )
            except SparkOptionError as error:
                self.add_error(None, str(error))
        return cleaned


def _field(name: str, default: OptionValue) -> forms.Field:
    if isinstance(default, bool):
        return forms.BooleanField(label=name, required=False, initial=default)
    shown = _("Default: %(default)s") % {
        "default": NOTHING if default in (None, "") else default
    }
    return forms.CharField(
        label=name,
        required=False,
        max_length=OPTION_CHARACTERS_MAX,
        empty_value="",
        initial="" if default is None else default,
        help_text=f"{KINDS[type(default)]} {shown}",
        widget=forms.TextInput({"spellcheck": "false", "autocomplete": "off"}),
    )
