"""
What all pages share: rows of the queue's database, to look at and not to edit.

A row that is added here would be code that runs with chosen arguments, and a row that
is changed here could be settled by its worker at the same moment. So the forms of
Django's admin are closed, and what may be done is an act of its own (acts.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import AdminSite
from django.contrib.admin.models import LogEntry
from django.contrib.admin.templatetags.admin_urls import add_preserved_filters
from django.contrib.admin.utils import unquote
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.paginator import Paginator
from django.db import OperationalError
from django.db.models import Model, QuerySet
from django.db.models.functions import Now
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.template.loader import get_template
from django.template.response import TemplateResponse
from django.utils.functional import Promise
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from django_pgqueue.admin import payload
from django_pgqueue.admin.acts import Button
from django_pgqueue.admin.cells import link_on, url_on
from django_pgqueue.admin.keyset_list import PagedAdmin
from django_pgqueue.conf import get_settings
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

AppList = Callable[..., list[dict[str, Any]]]

# The parts of the overview, and whose rows they tell of.
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
    return request.user.has_perm(f"pgqueue.view_{model._meta.model_name}")


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
    app_list: AppList, request: HttpRequest, app_label: str | None = None
) -> list[dict[str, Any]]:
    apps = app_list(request, app_label)
    # The page of one app is the overview.
    if app_label is None and any(may_view(request, each) for each in MODELS.values()):
        for app in apps:
            if app["app_label"] == Job._meta.app_label and app["models"]:
                app["models"].insert(0, _entry(app))
    return apps


def _entry(app: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overview as if it was a model, of which Django's templates tell."""
    return {
        **app["models"][0],
        "name": _("Overview"),
        # Makes the id of its element.
        "object_name": "OverviewPage",
        "perms": {"view": True},
        "view_only": True,
        "add_url": None,
        # Django marks as current whose URL begins that of the page: all of our pages'.
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

# A job's row is in one of them, and moves.
JOB_MODELS = (Job, ArchivedJob, DeadLetter)

# A label and what stands beside it; None and "" are left out.
Fact = tuple[str | Promise, Any]


def column(label: Any, of: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a column of a list: its label, and what *of* shows of a row."""
    return admin.display(description=label)(lambda page, row: of(row))


@functools.cache
def breadcrumbs_are_list() -> bool:
    """Whether the admin in use styles breadcrumbs as a list, as Django 6.1 does."""
    source: str = get_template("admin/base.html").template.source  # type: ignore[attr-defined]
    return '<ol class="breadcrumbs"' in source


class ReadOnlyAdmin(PagedAdmin):
    """A list by key and a detail page, over PGQUEUE["DATABASE"]."""

    # The columns of JSON that the detail page shows to those who may see payloads.
    payload_columns: ClassVar[tuple[str, ...]] = ()
    # Other columns of JSON, which no page reads as they are.
    hidden_columns: ClassVar[tuple[str, ...]] = ()
    # Columns whose text may be made of arguments: for the same people.
    key_columns: ClassVar[tuple[str, ...]] = ()

    change_list_template = "admin/pgqueue/list.html"
    change_form_template = "admin/pgqueue/detail.html"
    object_history_template = "admin/pgqueue/history.html"

    def __init__(self, model: type[Model], admin_site: admin.AdminSite) -> None:
        super().__init__(model, admin_site)
        link_on_index(admin_site)

    @property
    def media(self) -> forms.Media:
        """Add the styles of badges, payloads and the pager."""
        return super().media + forms.Media(css={"all": ["pgqueue/admin.css"]})

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
        texts = {}
        if payload.may_see(request):
            texts = {
                f"{name}_text": payload.as_text(name) for name in self.payload_columns
            }
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

    def _key(self, text: str) -> Any:
        """Return *text* as a primary key, or None when it cannot be one."""
        try:
            key = self.model._meta.pk.clean(text, None)
        except ValidationError:
            return None
        return None if isinstance(key, str) and "\x00" in key else key

    # The list --------------------------------------------------------------------

    def changelist_view(
        self, request: HttpRequest, extra_context: Any = None
    ) -> HttpResponse:
        """Show the list."""
        return self.seen(request, lambda: self._list(request, extra_context or {}))

    def seen(
        self, request: HttpRequest, answer: Callable[[], HttpResponse]
    ) -> HttpResponse:
        """Return *answer* to those who may look, and who do no more than that."""
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        if not self.has_view_permission(request):
            # Asked before the row is: whether it exists is nobody else's business.
            raise PermissionDenied
        return self.answered(request, answer)

    def _list(self, request: HttpRequest, extra_context: Any) -> HttpResponse:
        with limited(Plans.IN_ORDER):
            # Rows are read by it; what is rendered later asks for none.
            return super().changelist_view(
                request, {**self.list_context(request), **extra_context}
            )

    def list_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return what the list shows besides its rows."""
        return {}

    # The detail page -------------------------------------------------------------

    def facts(self, row: Any) -> list[Fact]:
        """Return what the detail page says about *row*, in order."""
        raise NotImplementedError

    def heading(self, row: Any) -> Any:
        """Return what stands beside the title, a badge for instance."""
        return ""

    def buttons(self, request: HttpRequest, row: Any) -> list[Button]:
        """Return what can be done with *row*."""
        return []

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: Any = None,
    ) -> HttpResponse:
        """Show one row; if it has moved to another table, go there."""
        return self.seen(
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
            "subtitle": None,
            "opts": self.opts,
            "has_view_permission": True,
            "add": False,
            "is_popup": False,
            "media": forms.Media(css={"all": ["pgqueue/admin.css"]}),
            "list_url": self.list_url(request),
            "breadcrumbs_are_list": breadcrumbs_are_list(),
        }

    def answered(
        self, request: HttpRequest, answer: Callable[[], HttpResponse]
    ) -> HttpResponse:
        """Return *answer*, or a page that says that the database took too long."""
        try:
            return answer()
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
        if self.model in JOB_MODELS:
            for model in JOB_MODELS:
                there = model._default_manager.using(get_settings().database)
                may_look = request.user.has_perm(
                    f"pgqueue.view_{model._meta.model_name}"
                )
                if key is not None and may_look and there.filter(pk=key).exists():
                    text = _(
                        "Job %(id)s has moved: it is among the %(plural)s now."
                    ) % {
                        "id": key,
                        "plural": model._meta.verbose_name_plural,
                    }
                    messages.info(request, text)
                    return HttpResponseRedirect(self._url(model, "change", key))
        text = _("There is no %(name)s %(id)s, or it has been purged.")
        names = {"name": self.opts.verbose_name, "id": object_id[:50]}
        messages.warning(request, text % names)
        return HttpResponseRedirect(self.list_url(request))

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        """Show who did what to the job, in whichever table its row was then."""
        return self.seen(
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
        return TemplateResponse(
            request,
            self.object_history_template,
            context,
        )

    # Where -----------------------------------------------------------------------

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

    def link_to(self, model: type[Model], key: int | None) -> SafeString | str | None:
        """Return the id of a row as a link to it; None stays None."""
        return None if key is None else self.link(model, str(key), key)

    def link(
        self,
        model: type[Model],
        text: object,
        key: int | str | None = None,
        /,
        **query: Any,
    ) -> SafeString | str:
        """Return *text* as a link, as link_on() does on this site."""
        return link_on(self.admin_site, model, text, key, **query)

    def _url(self, model: type[Model], name: str, *args: object) -> str:
        return url_on(self.admin_site, model, name, *args)
