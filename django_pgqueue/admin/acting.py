"""
The page of a noun: its rows to look at, and acts; what all pages of ours share.

A row that is added here would be code that runs with chosen arguments, and a row that
is changed here could be settled by its worker at the same moment. So the forms of
Django's admin are closed, and what may be done is an act of its own (acts.py). Django's
own handling of actions skips one that is not permitted, fails with 500 on ids that are
none, and may be asked for all rows of the table, so it is replaced here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import AdminSite
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry
from django.contrib.admin.templatetags.admin_urls import add_preserved_filters
from django.contrib.admin.utils import quote, unquote
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import BadRequest, PermissionDenied, ValidationError
from django.core.paginator import Paginator
from django.db import IntegrityError, OperationalError
from django.db.models import DateTimeField, Field, Model, QuerySet
from django.db.models.functions import Now
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.template.loader import get_template
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.functional import Promise
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments, payload
from django_pgqueue.admin.acts import Act, may
from django_pgqueue.admin.cells import link_on, name, url_on
from django_pgqueue.admin.keyset_list import PagedAdmin
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import InvalidOption
from django_pgqueue.models import (
    ArchivedJob,
    ConsumerGroup,
    DeadLetter,
    Job,
    Schedule,
    Worker,
    Workflow,
)
from django_pgqueue.postgres import limited as by_alias
from django_pgqueue.postgres.limits import Plans

# The parts of the overview, and the models of their rows.
MODELS: Mapping[str, type[Model]] = {
    "jobs": Job,
    "dead_letters": DeadLetter,
    "workers": Worker,
    "groups": ConsumerGroup,
    "schedules": Schedule,
    "workflows": Workflow,
}


def may_view(request: HttpRequest, model: type[Model]) -> bool:
    """Whether the user may view rows of *model*."""
    return may(request, f"view_{model._meta.model_name}")


def link_on_index(site: AdminSite) -> None:
    """
    Have *site* list the overview before our other pages, for who may see some of it.

    Django lists models alone, and no class of ours is the project's site; so its method
    is wrapped, once, where pages of ours are registered.
    """
    if getattr(site.get_app_list, "func", None) is not _listed:
        listed = functools.partial(_listed, site.get_app_list)
        site.get_app_list = listed  # type: ignore[method-assign]


def _listed(
    app_list: Callable[..., list[dict[str, Any]]],
    request: HttpRequest,
    app_label: str | None = None,
) -> list[dict[str, Any]]:
    apps = app_list(request, app_label)
    # The page of one app is the overview.
    if app_label is None and any(may_view(request, each) for each in MODELS.values()):
        for app in apps:
            if app["app_label"] == Job._meta.app_label and app["models"]:
                app["models"].insert(0, _entry(app))
    return apps


def _entry(app: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overview as if it was a model, which Django's templates list."""
    return {
        **app["models"][0],
        "name": _("Overview"),
        # Makes the id of its element.
        "object_name": "OverviewPage",
        "perms": {"view": True},
        "view_only": True,
        "add_url": None,
        # Django marks the page whose URL begins that of the page shown: all of ours.
        "admin_url": f"{app['app_url']}?",
    }


# Longer than any statement here takes, and shorter than a person's patience.
STATEMENT_SECONDS_MAX = 10

QUERY_CANCELED = "57014"


def limited(plans: Plans = Plans.ANY) -> AbstractContextManager[None]:
    """
    Open a transaction on PGQUEUE["DATABASE"] whose statements are limited.

    Args:
        plans: Which scans the statements may use.

    Raises:
        OperationalError: A statement took too long; see is_too_slow().
    """
    return by_alias.limited(
        get_settings().database, seconds=STATEMENT_SECONDS_MAX, plans=plans
    )


def is_too_slow(error: OperationalError) -> bool:
    """Return whether *error* is a statement that was cancelled for its time."""
    return getattr(error.__cause__, "sqlstate", None) == QUERY_CANCELED


# Entries of a history, the latest.
ENTRIES_MAX = 100

# Rows that one request may act on: what it changes stays locked until it is done.
SELECTED_ROWS_MAX = 500

# Sent with the form of an act: it was filled in, and not only asked for.
CONFIRMED = "confirmed"

# Rows that the page of a form names; of the others, it shows the number.
NAMED_ROWS_MAX = 20

# A job's row is in one of them, and moves.
JOB_MODELS = (Job, ArchivedJob, DeadLetter)

LOOKS = ("GET", "HEAD")

# A label and what stands beside it; None and "" are left out.
Fact = tuple[str | Promise, Any]


def column(label: Any, of: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a column of a list, or a fact: its label, and what *of* shows of a row."""
    return admin.display(description=label)(lambda page, row: of(row))


def field_column(field: Field[Any, Any]) -> Callable[..., Any]:
    """Return a column of a list that shows a field of the model."""

    def cell(row: Any) -> Any:
        value = getattr(row, field.attname)
        if isinstance(field, DateTimeField):
            return moments.short(value, row.clock)
        if value is None or isinstance(value, str):
            return name(value)
        return str(value)

    cell.__name__ = field.name
    return admin.display(description=field.verbose_name)(cell)


@functools.cache
def breadcrumbs_are_list() -> bool:
    """Whether the admin in use styles breadcrumbs as a list, as Django 6.1 does."""
    source: str = get_template("admin/base.html").template.source  # type: ignore[attr-defined]
    return '<ol class="breadcrumbs"' in source


class ActingAdmin(PagedAdmin):
    """
    A list by key, a page of each row, and acts, over PGQUEUE["DATABASE"].

    ``list_display`` and ``fields`` name fields of the model, and columns of the page.
    """

    # The columns of JSON that the detail page shows to those who may see payloads.
    payload_columns: ClassVar[tuple[str, ...]] = ()
    # Other columns of JSON, which no page reads as they are.
    hidden_columns: ClassVar[tuple[str, ...]] = ()
    # Columns whose text may be made of arguments: for the same people.
    key_columns: ClassVar[tuple[str, ...]] = ()
    # Columns of the list for those people alone.
    payload_display: ClassVar[tuple[str, ...]] = ()

    acts: ClassVar[tuple[Act, ...]] = ()
    # What a list, a log entry and a form need of a row to name it.
    named_by: ClassVar[tuple[str, ...]] = ()
    # Other lists that the list leads to, with what the links say.
    links: ClassVar[tuple[tuple[type[Model], Any], ...]] = ()
    # Whether pages are renewed while something goes on.
    is_live: ClassVar[bool] = False

    change_list_template = "admin/pgqueue/list.html"
    change_form_template = "admin/pgqueue/detail.html"
    object_history_template = "admin/pgqueue/history.html"

    def __init__(self, model: type[Model], admin_site: AdminSite) -> None:
        super().__init__(model, admin_site)
        link_on_index(admin_site)

    @property
    def own_media(self) -> forms.Media:
        """The styles of badges, payloads and the pager, and what renews a page."""
        scripts = ["pgqueue/live.js"] if self.is_live else []
        return forms.Media(css={"all": ["pgqueue/admin.css"]}, js=scripts)

    @property
    def media(self) -> forms.Media:
        """Add ours to what Django's lists need."""
        return super().media + self.own_media

    # Who may ---------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody: enqueue instead."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody: rows leave by settle, redrive and purge."""
        return False

    def require(self, request: HttpRequest, is_permitted: bool) -> None:
        """Refuse a user who may not view the page, or not do this."""
        # Before anything else: whether a row exists is nobody's business without it.
        if not self.has_view_permission(request) or not is_permitted:
            raise PermissionDenied

    def answer(
        self,
        request: HttpRequest,
        view: Callable[[], HttpResponse],
        permissions: Sequence[str] = (),
        methods: Sequence[str] = LOOKS,
    ) -> HttpResponse:
        """Return what *view* does for those who may; or that it took too long."""
        self.require(request, may(request, *permissions))
        if request.method not in methods:
            return HttpResponseNotAllowed(methods)
        try:
            return view()
        except OperationalError as error:
            if not is_too_slow(error):
                raise
        context = {
            **self.page_context(request),
            "title": _("The database took too long"),
            "seconds": STATEMENT_SECONDS_MAX,
            "is_post": request.method == "POST",
        }
        return TemplateResponse(
            request, "admin/pgqueue/too_slow.html", context, status=503
        )

    # Which rows ------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows of the database that the queue is in."""
        rows: QuerySet[Any] = self.model._default_manager.using(get_settings().database)
        return rows

    def detailed(self, row: Any) -> Any:
        """Return *row* with what its page reads besides; as in a list."""
        return self.listed([row])[0]

    def detail_rows(self, request: HttpRequest) -> QuerySet[Any]:
        """Return rows with what a detail page shows: JSON as text, if permitted."""
        columns = self.payload_columns if payload.may_see(request) else ()
        texts = {f"{each}_text": payload.as_text(each) for each in columns}
        rows = self.get_queryset(request)
        rows = rows.defer(*self.payload_columns, *self.hidden_columns)
        shown: QuerySet[Any] = rows.annotate(clock=Now(), **self.computed, **texts)
        return shown

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Return the row, or None when there is none or *object_id* cannot be one."""
        key = self._key(object_id)
        if key is None:
            return None
        row = self.detail_rows(request).filter(pk=key).first()
        if row is None:
            return None
        if not payload.may_see(request):
            payload.hide(row, self.key_columns)
        return self.detailed(row)

    def rows_by_key(self, request: HttpRequest, keys: Sequence[Any]) -> dict[Any, Any]:
        """Return those of this page's rows that exist, by their keys, in order."""
        rows = self.get_queryset(request).only(*self.named_by).in_bulk(list(keys))
        return {key: rows[key] for key in keys if key in rows}

    def named_row(self, request: HttpRequest, object_id: str) -> Any:
        """Return the row of a form, as its log entry names it, or None."""
        key = self._key(object_id)
        return None if key is None else self.rows_by_key(request, [key]).get(key)

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
        texts = {each: payload.as_text(column) for each, column in columns.items()}
        return rows.annotate(clock=Now(), **texts).filter(pk=key).first()

    def _key(self, text: str) -> Any:
        """Return *text* as a primary key, or None when it cannot be one."""
        try:
            key = self.model._meta.pk.clean(text, None)
        except ValidationError:
            return None
        return None if isinstance(key, str) and "\x00" in key else key

    # The list --------------------------------------------------------------------

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """Return the columns that the user may see; ours for fields of the model."""
        may_see = payload.may_see(request)
        return [
            each if hasattr(self, each) else field_column(self._field(each))
            for each in map(str, self.list_display)
            if may_see or each not in self.payload_display
        ]

    def _field(self, name: str) -> Field[Any, Any]:
        return cast("Field[Any, Any]", self.opts.get_field(name))

    def changelist_view(
        self, request: HttpRequest, extra_context: Any = None
    ) -> HttpResponse:
        """Show the list; on POST, act on the rows that were ticked."""
        if request.method == "POST" and self.acts:
            view, methods = lambda: self._act_on_ticked(request), ("POST",)
            return self.answer(request, view, methods=methods)
        return self.answer(request, lambda: self._list(request, extra_context or {}))

    def _list(self, request: HttpRequest, extra_context: Any) -> HttpResponse:
        with limited(Plans.IN_ORDER):
            # Rows are read by it; what is rendered later asks for none.
            return super().changelist_view(
                request, {**self.list_context(request), **extra_context}
            )

    def list_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return what the list shows besides its rows: links to other lists."""
        links = [
            (self._url(model, "changelist"), label)
            for model, label in self.links
            if self.has_page(model)
        ]
        return {"tools": links}

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
            if act.view is None
        }

    def _act_on_ticked(self, request: HttpRequest) -> HttpResponse:
        name = request.POST.get("action", "")
        ticked = request.POST.getlist(ACTION_CHECKBOX_NAME)
        if name and name not in {act.name for act in self.acts if act.view is None}:
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
            keys = [self._key(text) for text in ticked]
            if None in keys:
                raise BadRequest("A ticked row has a key that this page cannot have")
            hidden = [
                ("action", name),
                *((ACTION_CHECKBOX_NAME, key) for key in ticked),
            ]
            return self._ask_or_do(request, act, sorted(set(keys)), back, hidden)
        return HttpResponseRedirect(back)

    # The page of one row ---------------------------------------------------------

    def facts(self, row: Any) -> list[Fact]:
        """Return what the detail page says about *row*, in order: its ``fields``."""
        return [self._fact(str(each), row) for each in self.fields or ()]

    def _fact(self, name: str, row: Any) -> Fact:
        shown = getattr(self, name, None)
        if shown is not None:
            return capfirst(shown.short_description), shown(row)
        field = self._field(name)
        value = getattr(row, field.attname)
        if isinstance(field, DateTimeField):
            value = moments.full(value, row.clock)
        return capfirst(field.verbose_name), None if value is None else str(value)

    def heading(self, row: Any) -> Any:
        """Return what stands beside the title, a badge for instance."""
        return ""

    def permitted_acts(self, request: HttpRequest) -> dict[str, Act]:
        """Return the acts that the user may do, by name."""
        return {act.name: act for act in self.acts if act.is_permitted(request)}

    def buttons(self, request: HttpRequest, row: Any) -> list[tuple[str, Act]]:
        """Offer the acts that the user may do, and that would do something."""
        return [
            (self.act_url(request, act.name, row), act)
            for act in self.permitted_acts(request).values()
            if self.offers(request, act, row)
        ]

    def offers(self, request: HttpRequest, act: Act, row: Any) -> bool:
        """Return whether the page of *row* offers an act that the user may do."""
        return act.offered(row)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: Any = None,
    ) -> HttpResponse:
        """Show one row; if it has moved to another table, go there."""
        return self.answer(
            request, lambda: self._detail(request, unquote(object_id), extra_context)
        )

    def _detail(
        self, request: HttpRequest, object_id: str, extra_context: Any
    ) -> HttpResponse:
        with limited(Plans.IN_ORDER):
            row = self.get_object(request, object_id)
            if row is None:
                return self.elsewhere(request, object_id)
            may_see = payload.may_see(request)
            context = {
                **self.page_context(request),
                "title": str(row),
                "original": row,
                "heading": self.heading(row),
                "buttons": self.buttons(request, row),
                "facts": [
                    fact for fact in self.facts(row) if fact[1] not in (None, "")
                ],
                "has_payloads": bool(self.payload_columns),
                "may_see_payload": may_see,
                "view_payload": payload.VIEW_PAYLOAD,
                "payloads": self._payloads(row) if may_see else [],
                "preserved_filters": self.get_preserved_filters(request),
                **self.detail_context(request, row),
                **(extra_context or {}),
            }
        return TemplateResponse(request, self.change_form_template, context)

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return what the page of *row* shows besides facts and payloads."""
        return {}

    def page_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return what Django's templates need for a page of this model."""
        request.current_app = self.admin_site.name
        return {
            **self.admin_site.each_context(request),
            "admin_site": self.admin_site,
            "subtitle": None,
            "opts": self.opts,
            "has_view_permission": True,
            "add": False,
            "is_popup": False,
            "media": self.own_media,
            "list_url": self.list_url(request),
            "breadcrumbs_are_list": breadcrumbs_are_list(),
        }

    def carried(self, row: Any) -> tuple[str, ...]:
        """Return the columns of JSON that say something of *row*."""
        return self.payload_columns

    def _payloads(self, row: Any) -> list[payload.Payload]:
        return [
            payload.payload(
                self.model._meta.get_field(name).verbose_name,
                text,
                task=row.task if name == "args" else None,
            )
            for name in self.carried(row)
            if (text := getattr(row, f"{name}_text")) is not None
        ]

    def elsewhere(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Go to the row that a job has become, or back to the list."""
        key = self._key(object_id)
        for model in JOB_MODELS if self.model in JOB_MODELS and key is not None else ():
            there = model._default_manager.using(get_settings().database)
            if may_view(request, model) and there.filter(pk=key).exists():
                text = _("Job %(id)s has moved: it is among the %(plural)s now.")
                names = {"id": key, "plural": model._meta.verbose_name_plural}
                messages.info(request, text % names)
                return self.to_row(key, model)
        text = _("There is no %(name)s %(id)s, or it has been purged.")
        names = {"name": self.opts.verbose_name, "id": object_id[:50]}
        messages.warning(request, text % names)
        return HttpResponseRedirect(self.list_url(request))

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        """Show who did what to the job, in whichever table its row was then."""
        return self.answer(
            request, lambda: self._history(request, unquote(object_id), extra_context)
        )

    def _history(
        self, request: HttpRequest, object_id: str, extra_context: Any
    ) -> HttpResponse:
        # Not Django's: it counts the entries, and knows those of one table only.
        models = JOB_MODELS if self.model in JOB_MODELS else (self.model,)
        with limited():
            row = self.get_object(request, object_id)
            if row is None:
                return self.elsewhere(request, object_id)
            entries = LogEntry.objects.filter(
                object_id=str(row.pk),
                content_type__in=ContentType.objects.get_for_models(*models).values(),
            )
            entries = entries.select_related("user").order_by("-action_time")
            page = Paginator(list(entries[:ENTRIES_MAX]), ENTRIES_MAX).get_page(1)
            context = {
                **self.page_context(request),
                "title": _("History of %(row)s") % {"row": row},
                "object": row,
                "original": row,
                "module_name": str(capfirst(self.opts.verbose_name_plural)),
                "action_list": page,
                "page_range": [],
                "page_var": "p",
                "pagination_required": False,
                "preserved_filters": self.get_preserved_filters(request),
                **(extra_context or {}),
            }
        return TemplateResponse(request, self.object_history_template, context)

    # Acts and forms --------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs that do something; the permission is asked there again."""
        return [*map(self._act_url, self.acts), *super().get_urls()]

    def own_url(
        self,
        name: str,
        view: Callable[..., HttpResponse],
        permissions: Sequence[str] = (),
        *,
        of_row: bool = True,
        methods: Sequence[str] = (*LOOKS, "POST"),
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

        def answer(request: HttpRequest, **row: str) -> HttpResponse:
            keys = [unquote(key) for key in row.values()]
            called = functools.partial(view, request, *keys)
            return self.answer(request, called, permissions, methods)

        return path(
            f"<path:object_id>/{name}/" if of_row else f"{name}/",
            self.admin_site.admin_view(answer),
            name=f"pgqueue_{self.opts.model_name}_{name}",
        )

    def _act_url(self, act: Act) -> URLPattern:
        def view(request: HttpRequest, text: str) -> HttpResponse:
            key = self._key(text)
            if key is None:
                raise Http404(f"{text[:50]!r} is no key of this page")
            return self._ask_or_do(request, act, [key], self.list_url(request), [])

        if act.view is not None:
            return self.own_url(act.name, getattr(self, act.view), act.permissions)
        methods = ("POST",) if act.is_at_once else (*LOOKS, "POST")
        return self.own_url(act.name, view, act.permissions, methods=methods)

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
                act.do(request, rows, data, asked=len(keys))
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
        return self.form_page(
            request,
            form,
            title=act.label,
            warning=act.warning,
            rows=rows[:NAMED_ROWS_MAX],
            rows_left_out=max(len(rows) - NAMED_ROWS_MAX, 0),
            hidden=[*hidden, (CONFIRMED, "1")],
            submits=[("", act.label)],
            is_grave=act.is_grave,
            back=back,
        )

    def form_page(
        self,
        request: HttpRequest,
        form: forms.Form,
        template: str = "admin/pgqueue/form.html",
        **context: Any,
    ) -> HttpResponse:
        """Return the page of a *form*; its way back is the page of the "original"."""
        row = context.get("original")
        back = {} if row is None else {"back": self._row_url(row.pk)}
        shown = {**self.page_context(request), "form": form, **back, **context}
        return TemplateResponse(request, template, shown)

    # Where -----------------------------------------------------------------------

    def act_url(self, request: HttpRequest, name: str, row: Any) -> str:
        """Return where *name* is done with *row*; it comes back to the list."""
        preserved = self.get_preserved_filters(request)
        url = self._url(self.model, name, quote(row.pk))
        return f"{url}?{preserved}" if preserved else url

    def list_url(self, request: HttpRequest) -> str:
        """Return the list, with the filters that the user came from."""
        preserved = self.get_preserved_filters(request)
        return add_preserved_filters(
            {"preserved_filters": preserved, "opts": self.opts},
            self._url(self.model, "changelist"),
        )

    def has_page(self, model: type[Model]) -> bool:
        """Return whether this site has pages of *model*: a project's own may not."""
        return self.admin_site.is_registered(model)

    def link_to(self, model: type[Model], key: int | None) -> str | None:
        """Return the id of a row as a link to it; None stays None."""
        return None if key is None else self.link(model, str(key), key)

    def link(
        self,
        model: type[Model],
        text: object,
        key: int | str | None = None,
        /,
        **query: Any,
    ) -> str:
        """Return *text* as a link, as link_on() does on this site."""
        return link_on(self.admin_site, model, text, key, **query)

    def to_row(self, key: Any, model: type[Model] | None = None) -> HttpResponse:
        """Go to the page of a row, one of this page's unless *model* says otherwise."""
        return HttpResponseRedirect(self._row_url(key, model))

    def _row_url(self, key: Any, model: type[Model] | None = None) -> str:
        return self._url(model or self.model, "change", quote(key))

    def _url(self, model: type[Model], name: str, *args: object) -> str:
        return url_on(self.admin_site, model, name, *args)
