"""
Acting: what pages with acts share, for the rows that are ticked and for one row.

Django's own handling of actions passes by one that is not permitted, fails with 500 on
ids that are none, and may be asked for all rows of the table. So it is replaced here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import IntegrityError
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _

from django_pgqueue.admin import payload
from django_pgqueue.admin.acts import Act, Button, may, tell
from django_pgqueue.admin.read_only import ReadOnlyAdmin, limited
from django_pgqueue.exceptions import InvalidOption

# Rows that one request may act on: what it changes stays locked until it is done.
SELECTED_ROWS_MAX = 500

# Sent with the form of an act: it was filled in, and not only asked for.
CONFIRMED = "confirmed"

# Rows that the page of a form names; of the others, it tells the number.
NAMED_ROWS_MAX = 20


class ActingAdmin(ReadOnlyAdmin):
    """A page on which something can be done."""

    acts: ClassVar[tuple[Act, ...]] = ()
    # What a list, a log entry and a form need of a row to name it.
    named_by: ClassVar[tuple[str, ...]] = ()

    def rows_by_key(self, request: HttpRequest, keys: Sequence[Any]) -> dict[Any, Any]:
        """Return those of this page's rows that exist, by their keys, in order."""
        rows = self.get_queryset(request).only(*self.named_by).in_bulk(list(keys))
        return {key: rows[key] for key in keys if key in rows}

    def row_to_edit(
        self, rows: QuerySet[Any], text: str, *, is_locked: bool, **columns: str
    ) -> Any:
        """
        Return a row for a form that edits it, with its columns of JSON as text.

        Args:
            rows: Among which it is.
            text: Its key, as a URL has it.
            is_locked: Whether it is locked for this transaction.
            columns: By the names of the texts.
        """
        key = self._key(text)
        if key is None:
            return None
        if is_locked:
            rows = rows.select_for_update(of=("self",))
        texts = {name: payload.as_text(column) for name, column in columns.items()}
        return rows.annotate(clock=Now(), **texts).filter(pk=key).first()

    def permitted_acts(self, request: HttpRequest) -> dict[str, Act]:
        """Return the acts that the user may do, by name."""
        return {act.name: act for act in self.acts if act.is_permitted(request)}

    # The list --------------------------------------------------------------------

    def get_actions(
        self, request: HttpRequest, action_location: Any = None
    ) -> dict[str, Any]:
        """
        Return the acts that the user is permitted.

        Actions that a project adds to every page of its site are left out: they get
        whole rows, so an export would show what view_payload protects.
        """
        return {
            name: (act.do, name, act.label)
            for name, act in self.permitted_acts(request).items()
        }

    def changelist_view(
        self, request: HttpRequest, extra_context: Any = None
    ) -> HttpResponse:
        """Show the list; on POST, act on the rows that were ticked."""
        if request.method == "POST":
            return self.answered(request, lambda: self._act_on_ticked(request))
        return super().changelist_view(request, extra_context)

    def _act_on_ticked(self, request: HttpRequest) -> HttpResponse:
        name = request.POST.get("action", "")
        ticked = request.POST.getlist(ACTION_CHECKBOX_NAME)
        if not self.has_view_permission(request):
            raise PermissionDenied
        if name and name not in {act.name for act in self.acts}:
            raise BadRequest(f"{name!r} is no action of this page")
        act = self.permitted_acts(request).get(name)
        if name and act is None:
            raise PermissionDenied
        back = request.get_full_path()
        if act is None or not ticked:
            problem = _("Nothing was done: choose an action and tick some rows.")
            messages.warning(request, problem)
        elif len(ticked) > SELECTED_ROWS_MAX:
            problem = _(
                "Nothing was done: %(ticked)d rows were ticked, at most %(max)d"
            )
            numbers = {"ticked": len(ticked), "max": SELECTED_ROWS_MAX}
            messages.error(request, problem % numbers)
        else:
            hidden = [
                ("action", name),
                *((ACTION_CHECKBOX_NAME, key) for key in ticked),
            ]
            return self._ask_or_do(request, act, self._keys(ticked), back, hidden)
        return HttpResponseRedirect(back)

    def _keys(self, texts: Sequence[str]) -> list[Any]:
        keys = [self._key(text) for text in texts]
        if None in keys:
            raise BadRequest("The key of a ticked row is none that this page can have")
        return sorted(set(keys))

    # One row ---------------------------------------------------------------------

    def buttons(self, request: HttpRequest, row: Any) -> list[Button]:
        """Offer the acts that the user may do, and that would do something."""
        return [
            Button(
                url=self.act_url(request, act.name, row),
                label=act.label,
                help=act.help,
                is_post=act.form is None,
                is_grave=act.is_grave,
            )
            for act in self.permitted_acts(request).values()
            if act.offered(row)
        ]

    def act_url(self, request: HttpRequest, name: str, row: Any) -> str:
        """Return where *name* is done with *row*; it comes back to the list."""
        preserved = self.get_preserved_filters(request)
        url = self._url(self.model, name, quote(row.pk))
        return f"{url}?{preserved}" if preserved else url

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs that do something; the permission is asked there again."""
        own = [self._act_url(act) for act in self.acts]
        return [*own, *super().get_urls()]

    def own_url(
        self,
        name: str,
        view: Callable[..., HttpResponse],
        permissions: Sequence[str] = (),
        *,
        of_row: bool = True,
        methods: Sequence[str] = ("GET", "HEAD", "POST"),
    ) -> URLPattern:
        """
        Return the URL of something that is done, for those who may.

        Args:
            name: The last part of the URL.
            view: Takes the request, and of a row the text of its key.
            permissions: Codenames that the user needs besides viewing the page.
            of_row: It is done with one row. Otherwise its URL has to stand before
                those of Django, which take any text for a key.
            methods: Others are refused.
        """

        def guarded(request: HttpRequest, **row: str) -> HttpResponse:
            self.require(request, may(request, *permissions))
            if request.method not in methods:
                return HttpResponseNotAllowed(methods)
            return view(request, *map(unquote, row.values()))

        return path(
            f"<path:object_id>/{name}/" if of_row else f"{name}/",
            self.admin_site.admin_view(
                lambda request, **row: self.answered(
                    request, lambda: guarded(request, **row)
                )
            ),
            name=f"pgqueue_{self.opts.model_name}_{name}",
        )

    def _act_url(self, act: Act) -> URLPattern:
        def view(request: HttpRequest, text: str) -> HttpResponse:
            key = self._key(text)
            if key is None:
                raise Http404(f"{text[:50]!r} is no key of this page")
            return self._ask_or_do(request, act, [key], self.list_url(request), [])

        methods = ["POST"] if act.form is None else ["GET", "HEAD", "POST"]
        return self.own_url(act.name, view, act.permissions, methods=methods)

    def require(self, request: HttpRequest, is_permitted: bool) -> None:
        """Refuse whoever may not view the page, or not do this."""
        # Before anything else: what else is wrong is nobody's business without it.
        if not self.has_view_permission(request) or not is_permitted:
            raise PermissionDenied

    # Both ------------------------------------------------------------------------

    def _ask_or_do(
        self,
        request: HttpRequest,
        act: Act,
        keys: Sequence[Any],
        back: str,
        hidden: list[tuple[str, str]],
    ) -> HttpResponse:
        """Show the form of *act*, or do it when that is filled in."""
        data: dict[str, Any] = {}
        if act.form is not None:
            is_filled = request.method == "POST" and CONFIRMED in request.POST
            form = act.form(request.POST if is_filled else None)
            if not form.is_valid():
                return self._ask(request, act, keys, back, hidden, form)
            data = form.cleaned_data
        try:
            with limited():
                rows = self.rows_by_key(request, keys)
                tell(request, act.do(request, rows, data, asked=len(keys)))
        except IntegrityError as error:
            # A row that somebody wrote by hand and that no queue may contain.
            problem = _("Nothing was moved, since the queue refuses a row: %(error)s")
            messages.error(request, problem % {"error": error})
        except InvalidOption as error:
            # A queue with a name that nobody can have enqueued to by us.
            messages.error(request, _("Nothing was done. %s") % error)
        return HttpResponseRedirect(back)

    def _ask(
        self,
        request: HttpRequest,
        act: Act,
        keys: Sequence[Any],
        back: str,
        hidden: list[tuple[str, str]],
        form: forms.Form,
    ) -> HttpResponse:
        rows = list(self.rows_by_key(request, keys).values())
        if not rows:
            messages.warning(request, _("Nothing was done: the rows have gone."))
            return HttpResponseRedirect(back)
        if act.said is not None and len(rows) == 1:
            form.initial = act.said(rows[0])
        linked = {name: request.GET.get(name) for name in act.from_url}
        form.initial = {**form.initial, **linked}
        context = {
            **self.page_context(request),
            "title": act.label,
            "warning": act.warning,
            "rows": rows[:NAMED_ROWS_MAX],
            "rows_left_out": max(len(rows) - NAMED_ROWS_MAX, 0),
            "form": form,
            "hidden": [*hidden, (CONFIRMED, "1")],
            "submits": [("", act.label)],
            "is_grave": act.is_grave,
            "back": back,
        }
        return TemplateResponse(request, "admin/pgqueue/form.html", context)
