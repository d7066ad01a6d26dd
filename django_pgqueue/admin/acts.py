"""
Act: one thing that people can do with rows, and who may.

The same act is an entry in the list's menu, for the rows that are ticked, and a button
on the page of one row. Its permission is asked when it is offered and again when it is
done; what it does, it tells the user and writes into the log of Django's admin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django import forms
from django.http import HttpRequest
from django.utils.functional import Promise

if TYPE_CHECKING:
    from django_pgqueue.admin.acting import ActingAdmin

# Does it: the page, the request, the keys of the rows, and what the form asked for.
Do = Callable[["ActingAdmin", HttpRequest, Sequence[Any], dict[str, Any]], None]


class Confirm(forms.Form):
    """Nothing to fill in: the page asks whether it is meant."""


@dataclass(frozen=True, slots=True)
class Act:
    """
    What can be done.

    Attributes:
        name: The action of the list, and the last part of the URL of one row.
        permissions: Codenames of this package that the user needs, all of them,
            besides being allowed to view the page.
        label: On the button and in the menu.
        help: What it does, beside the button.
        do: Does it.
        form: Asked first, on a page of its own; None: done at once.
        warning: Shown above that form.
        offered: Whether a row is one that it does something with.
        is_grave: It cannot be taken back; its button is red.
    """

    name: str
    permissions: tuple[str, ...]
    label: str | Promise
    help: str | Promise
    do: Do
    form: type[forms.Form] | None = None
    warning: str | Promise = ""
    offered: Callable[[Any], bool] = lambda row: True
    is_grave: bool = False

    def is_permitted(self, request: HttpRequest) -> bool:
        """Return whether the user has every permission that it needs."""
        return may(request, *self.permissions)


@dataclass(frozen=True, slots=True)
class Button:
    """What the page of one row offers."""

    url: str
    label: str | Promise
    help: str | Promise
    # False: a link to a form.
    is_post: bool
    is_grave: bool = False


def may(request: HttpRequest, *codenames: str) -> bool:
    """Return whether the user has all these permissions of this package."""
    return request.user.has_perms([f"pgqueue.{name}" for name in codenames])
