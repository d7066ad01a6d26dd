"""
Act: one thing that people can do with rows, as data, and the code that does it.

The same act is an entry in the list's menu, for the rows that are ticked, and a button
on the page of one row. Its permission is asked when it is offered and again when it is
done (acting.py). What became of rows is told to the user, and noted in Django's own log
of the admin. An entry there names no argument: whoever may view a job reads its
history, also without the permission to see what it carries.

The entries are written inside the transaction that changes the rows. Where they are in
another database, an act without its entry is impossible, while an entry of an act that
failed at its commit is not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.moments import MomentField
from django_pgqueue.operators.human import in_utc
from django_pgqueue.operators.pausable import PERMISSION, Pausable, Turn
from django_pgqueue.tasks.operate import BY_CHARACTERS_MAX, REASON_CHARACTERS_MAX

Text = str | Promise

# What came of rows: their keys, or by these the names of what was made of each.
Came = Collection[Any] | Mapping[Any, Sequence[object]]


class Confirm(forms.Form):
    """Nothing to fill in: the page asks whether it is meant."""


class TypedForm(forms.Form):
    """A form that does nothing before the name of the row is typed."""

    typed = forms.CharField(
        required=False,
        max_length=200,
        empty_value="",
        widget=forms.TextInput({"autocomplete": "off"}),
    )

    def __init__(self, row: Any, data: Any, **options: Any) -> None:
        super().__init__(data, **options)
        self.row = row
        self.fields["typed"].label = _("To do it, type its name")
        self.fields["typed"].help_text = str(row)

    def confirms(self) -> bool:
        """Whether the name was typed; says so at the field if not."""
        if self.cleaned_data["typed"].strip() == str(self.row):
            return True
        text = _("Type %(name)s to say that you mean it.")
        self.add_error("typed", ValidationError(text % {"name": self.row}))
        return False


class ReasonForm(forms.Form):
    """Why; kept with what is done."""

    reason = forms.CharField(
        label=_("Reason"),
        max_length=REASON_CHARACTERS_MAX,
        widget=forms.TextInput,
        help_text=_("For whoever looks at this later."),
    )


class PauseUntilForm(ReasonForm):
    """Why, and until when."""

    until = MomentField(
        label=_("Until"),
        required=False,
        help_text=_("It ends by itself then. Empty: when it is resumed."),
    )

    def clean_until(self) -> Any:
        """Return the time with its zone; without one, it is one of the project's."""
        until = self.cleaned_data["until"]
        return None if until is None else in_utc(until)


@dataclass(frozen=True, slots=True)
class Work:
    """Rows that something is to be done with, by their keys, and what the form said."""

    request: HttpRequest
    rows: dict[Any, Any]
    data: dict[str, Any]
    # Why nothing was done with a row, where that is told of it alone.
    problems: list[str] = field(default_factory=list)

    @property
    def by(self) -> str:
        """Who does it."""
        return who(self.request)


def joined(names: Iterable[object]) -> str:
    """Return *names* as a list in a sentence."""
    return ", ".join(map(str, names)) or "-"


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What can become of rows.

    Attributes:
        text: Says so of one row or several, with %(count)d, %(names)s, and the form's
            fields.
        entry: For the log, with %(names)s and the form's fields; or what makes that of
            the row and these. None: it leaves no entry.
        flag: ADDITION, CHANGE or DELETION of Django's log.
        is_left: They were left as they were, or so to speak.
        names: Makes %(names)s.
    """

    text: Text
    entry: Text | Callable[[Any, dict[str, Any]], str] | None = None
    flag: int = CHANGE
    is_left: bool = False
    names: Callable[[Iterable[object]], str] = joined

    def entry_of(self, row: Any, values: dict[str, Any]) -> str:
        """Return the entry of *row*."""
        if callable(self.entry):
            return self.entry(row, values)
        return str(self.entry) % values


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """
    What can be done.

    Attributes:
        name: The action of the list, and the last part of the URL of one row.
        permissions: Codenames of this package that the user needs, all of them,
            besides being allowed to view the page.
        label: On the button and in the menu.
        help: What it does, beside the button.
        run: Does it; returns what came of rows, for each of the outcomes.
        done: Says of how many rows it was done; see Outcome.text.
        entry: For the log of these; see Outcome.entry.
        flag: ADDITION, CHANGE or DELETION of Django's log.
        outcomes: Instead of these three, where several things can become of rows.
        view: A method of the page that does it instead, for one row at a time.
        left: Tells of how many rows nothing did, with %(count)d.
        form: Asked first, on a page of its own; None: done at once.
        warning: Shown above that form.
        said: What somebody has said of a row, by field: the form begins with it.
        from_url: Fields that the form begins with as a link's query says.
        offered: Whether a row is one that it does something with.
        is_grave: It cannot be taken back; its button is red.
        order: The attribute by which rows are taken: one order, so that two who act on
            several do not deadlock.
    """

    name: str
    permissions: tuple[str, ...]
    label: Text
    help: Text
    run: Callable[[Work], Sequence[Came]] = lambda work: []
    done: Text = ""
    entry: Text | Callable[[Any, dict[str, Any]], str] | None = None
    flag: int = CHANGE
    outcomes: Sequence[Outcome] = ()
    view: str | None = None
    left: Text | None = None
    form: type[forms.Form] | None = None
    warning: Text = ""
    said: Callable[[Any], dict[str, Any]] | None = None
    from_url: tuple[str, ...] = ()
    offered: Callable[[Any], bool] = lambda row: True
    is_grave: bool = False
    order: str = "pk"

    @property
    def is_at_once(self) -> bool:
        """Return whether it is done without a form."""
        return self.form is None and self.view is None

    def is_permitted(self, request: HttpRequest) -> bool:
        """Return whether the user has every permission that it needs."""
        return may(request, *self.permissions)

    def do(
        self,
        request: HttpRequest,
        rows: Mapping[Any, Any],
        data: dict[str, Any],
        *,
        asked: int,
    ) -> None:
        """
        Do it, note what became of rows, and tell the user.

        Args:
            request: Whose.
            rows: By their keys; those that have gone are not among them.
            data: Of the form.
            asked: How many rows were meant.
        """
        rows = dict(sorted(rows.items(), key=lambda at: getattr(at[1], self.order)))
        work = Work(request, rows, data)
        told: list[tuple[int, str, bool]] = []
        left = asked
        outcomes = self.outcomes or [Outcome(self.done, self.entry, self.flag)]
        for outcome, came in zip(outcomes, self.run(work), strict=True):
            told.append((*_note(work, outcome, came), outcome.is_left))
            left -= len(came)
        for problem in work.problems:
            messages.error(request, problem)
        left -= len(work.problems)
        if self.left is not None:
            told.append((left, str(self.left) % {"count": left}, True))
        # What has no rows is told only where nothing else has.
        shown = [each for each in told if each[0]] or told[: not work.problems]
        if shown:
            is_left = any(each[2] for each in shown)
            level = messages.WARNING if is_left else messages.SUCCESS
            messages.add_message(request, level, " ".join(each[1] for each in shown))


def may(request: HttpRequest, *codenames: str) -> bool:
    """Return whether the user has all these permissions of this package."""
    return request.user.has_perms([f"pgqueue.{name}" for name in codenames])


def who(request: HttpRequest) -> str:
    """Return the user's name, as the queue's tables keep it."""
    return request.user.get_username()[:BY_CHARACTERS_MAX]


def log(
    request: HttpRequest, rows: Sequence[Any], text: str, *, flag: int = CHANGE
) -> None:
    """
    Write one entry for each of *rows*; *text* says what was done.

    flag: ADDITION, CHANGE or DELETION of Django's log.
    """
    if rows:
        user = cast("int", request.user.pk)
        LogEntry.objects.log_actions(user, cast("Any", rows), flag, text)


def on_each(
    run: Callable[[Any, Work], Any], *refused: type[Exception], outcomes: int = 1
) -> Callable[[Work], Sequence[Came]]:
    """
    Return what runs *run* with each row by itself.

    Args:
        run: Takes a row; returns whether it did, or the names of what it has made, or
            these by the places of outcomes.
        refused: What it raises, as reasons for the user.
        outcomes: How many can become of rows.
    """

    def each(work: Work) -> Sequence[Came]:
        came: list[dict[Any, Sequence[object]]] = [{} for _ in range(outcomes)]
        for key, row in work.rows.items():
            try:
                made = run(row, work)
            except refused as error:
                work.problems.append(str(error))
                continue
            if made and not isinstance(made, Mapping):
                made = {0: () if made is True else made}
            for place, names in (made or {}).items():
                came[place][key] = names
        return came

    return each


def pausing(kind: Pausable) -> tuple[Act, Act]:
    """Return the acts that pause and resume rows of a *kind*."""
    at, by, reason = kind.columns
    form = PauseUntilForm if kind.can_end else ReasonForm

    def ended(row: Any, values: dict[str, Any]) -> str:
        names = {"by": getattr(row, by) or "?", "reason": getattr(row, reason) or "?"}
        return str(kind.end.entry) % names

    def act(turn: Turn, entry: Any, run: Any, is_begin: bool) -> Act:
        return Act(
            name=turn.name,
            permissions=(PERMISSION,),
            label=turn.label,
            help=turn.help,
            run=on_each(run),
            done=turn.done,
            entry=entry,
            left=turn.left,
            form=form if is_begin else None,
            warning=turn.warning,
            offered=lambda row: (getattr(row, at) is None) == is_begin,
            order=kind.order,
        )

    def begin(row: Any, work: Work) -> bool:
        return kind.begin.run(row, by=work.by, **work.data)

    return (
        act(kind.begin, kind.begin.entry, begin, True),
        act(kind.end, ended, lambda row, work: kind.end.run(row), False),
    )


def _note(work: Work, outcome: Outcome, came: Came) -> tuple[int, str]:
    """Write the entries of what came of rows, alike ones together; count and tell."""
    names = came if isinstance(came, Mapping) else dict.fromkeys(came, ())
    entries: dict[str, list[Any]] = {}
    for key, made in names.items() if outcome.entry is not None else ():
        values = {**work.data, "names": outcome.names(made)}
        text = outcome.entry_of(work.rows[key], values)
        entries.setdefault(text, []).append(work.rows[key])
    for text, rows in entries.items():
        log(work.request, rows, text, flag=outcome.flag)
    every = [name for made in names.values() for name in made]
    count = len(every) or len(names)
    values = {**work.data, "names": outcome.names(every), "count": count}
    return count, str(outcome.text) % values
