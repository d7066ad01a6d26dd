"""
What all pages share: rows of the queue's database, to look at and not to edit.

A row that is added here would be code that runs with chosen arguments, and a row that
is changed here could be settled by its worker at the same moment. So the forms of
Django's admin are closed, and what may be done goes through the verbs of queues/.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry
from django.contrib.admin.templatetags.admin_urls import add_preserved_filters
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import BadRequest, PermissionDenied, ValidationError
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.db.models.functions import Now
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from django_pgqueue.admin import payload
from django_pgqueue.admin.filter_form import FilterForm
from django_pgqueue.admin.keyset import Keyset
from django_pgqueue.admin.keyset_list import KeysetList
from django_pgqueue.conf import get_settings
from django_pgqueue.models import ArchivedJob, DeadLetter, Job

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = admin.ModelAdmin

RETRY = "pgqueue.retry"

# Rows that one request may act on: what it changes stays locked until it is done.
SELECTED_ROWS_MAX = 500

# A label and what stands beside it; None and "" are left out.
Fact = tuple[str | Promise, Any]


class ReadOnlyAdmin(Base):
    """A list by key and a detail page, over PGQUEUE["DATABASE"]."""

    keyset: ClassVar[Keyset] = Keyset(("id",))
    filter_form: ClassVar[type[FilterForm]] = FilterForm
    # The columns that a list reads; those of JSON can be megabytes.
    list_reads: ClassVar[tuple[str, ...]] = ()
    # The columns of JSON that the detail page shows to those who may see payloads.
    payload_columns: ClassVar[tuple[str, ...]] = ()
    has_errors: ClassVar[bool] = False

    list_per_page = 50
    sortable_by = ()
    show_full_result_count = False
    # "Show counts" would count the table once per filter.
    show_facets = admin.ShowFacets.NEVER
    change_list_template = "admin/pgqueue/list.html"
    change_form_template = "admin/pgqueue/detail.html"

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

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may retry jobs and redrive dead letters."""
        return request.user.has_perm(RETRY)

    # Which rows ------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows of the database that the queue is in."""
        rows: QuerySet[Any] = self.model._default_manager.using(get_settings().database)
        return rows

    def list_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return *rows* with what a list shows of them, and the database's clock."""
        listed: QuerySet[Any] = rows.only(*self.list_reads).annotate(clock=Now())
        return listed

    def detail_rows(self, request: HttpRequest) -> QuerySet[Any]:
        """Return rows with what a detail page shows: JSON as text, if permitted."""
        rows = self.get_queryset(request).annotate(clock=Now())
        texts = {}
        if self.payload_columns:
            rows = rows.defer(*self.payload_columns)
            if payload.may_see(request):
                texts = {
                    f"{name}_text": payload.as_text(name)
                    for name in self.payload_columns
                }
        if self.has_errors:
            rows = rows.defer("errors")
            texts["errors_text"] = payload.as_text(
                "errors", payload.ERRORS_CHARACTERS_MAX
            )
        shown: QuerySet[Any] = rows.annotate(**texts)
        return shown

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Return the row, or None when there is none or *object_id* cannot be one."""
        key = self._key(object_id)
        if key is None:
            return None
        return self.detail_rows(request).filter(pk=key).first()

    def _key(self, text: str) -> Any:
        """Return *text* as a primary key, or None when it cannot be one."""
        try:
            key = self.model._meta.pk.clean(text, None)
        except ValidationError:
            return None
        return None if isinstance(key, str) and "\x00" in key else key

    # The list --------------------------------------------------------------------

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that pages by key."""
        return KeysetList

    def get_actions(
        self, request: HttpRequest, action_location: Any = None
    ) -> dict[str, Any]:
        """
        Return our own actions that the user is permitted.

        Actions that a project adds to every page of its site are left out: they get
        whole rows, so an export would show what view_payload protects.
        """
        # Django 6.1 asks for a place of the actions, and 5.2 knows none.
        place = {} if action_location is None else {"action_location": action_location}
        actions = super().get_actions(request, **place)
        return {name: actions[name] for name in actions if name in (self.actions or ())}

    def changelist_view(
        self, request: HttpRequest, extra_context: Any = None
    ) -> HttpResponse:
        """Show the list; on POST, act on the rows that were ticked."""
        if request.method == "POST":
            return self._act(request)
        return super().changelist_view(request, extra_context)

    def _act(self, request: HttpRequest) -> HttpResponse:
        # Django's own handling passes by an action that is not permitted, fails with
        # 500 on ids that are none, and may be asked for all rows of the table.
        name = request.POST.get("action", "")
        ticked = request.POST.getlist(ACTION_CHECKBOX_NAME)
        if not self.has_view_permission(request):
            raise PermissionDenied
        if name and name not in (self.actions or ()):
            raise BadRequest(f"{name!r} is no action of this page")
        if name and name not in self.get_actions(request):
            raise PermissionDenied
        if not name or not ticked:
            problem = _("Nothing was done: choose an action and tick some rows.")
            messages.warning(request, problem)
        elif len(ticked) > SELECTED_ROWS_MAX:
            problem = _(
                "Nothing was done: %(ticked)d rows were ticked, at most %(max)d"
            )
            numbers = {"ticked": len(ticked), "max": SELECTED_ROWS_MAX}
            messages.error(request, problem % numbers)
        else:
            getattr(self, name)(request, self._ids(ticked))
        return HttpResponseRedirect(request.get_full_path())

    def _ids(self, texts: Sequence[str]) -> list[int]:
        ids = [self._key(text) for text in texts]
        if None in ids:
            raise BadRequest("An id of a ticked row is not a number that ids have")
        return sorted(set(ids))

    # The detail page -------------------------------------------------------------

    def facts(self, row: Any) -> list[Fact]:
        """Return what the detail page says about *row*, in order."""
        raise NotImplementedError

    def heading(self, row: Any) -> Any:
        """Return what stands beside the title, a badge for instance."""
        return ""

    def buttons(self, request: HttpRequest, row: Any) -> list[tuple[str, str, str]]:
        """Return (URL to POST to, label, what it does) of each button."""
        return []

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: Any = None,
    ) -> HttpResponse:
        """Show one row; if it has moved to another table, go there."""
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_object(request, unquote(object_id))
        if row is None:
            return self._elsewhere(request, unquote(object_id))
        request.current_app = self.admin_site.name
        may_see = payload.may_see(request)
        context = {
            **self.admin_site.each_context(request),
            "title": str(row),
            "subtitle": None,
            "opts": self.opts,
            "original": row,
            "has_view_permission": True,
            "add": False,
            "is_popup": False,
            "media": forms.Media(css={"all": ["pgqueue/admin.css"]}),
            "heading": self.heading(row),
            "buttons": self.buttons(request, row),
            "facts": [fact for fact in self.facts(row) if fact[1] not in (None, "")],
            "has_payloads": bool(self.payload_columns),
            "may_see_payload": may_see,
            "view_payload": payload.VIEW_PAYLOAD,
            "payloads": self._payloads(row) if may_see else [],
            "has_errors": self.has_errors,
            "failures": payload.failures(
                row.errors_text, clock=row.clock, may_see=may_see
            )
            if self.has_errors
            else [],
            "list_url": self.list_url(request),
            "preserved_filters": self.get_preserved_filters(request),
            **(extra_context or {}),
        }
        return TemplateResponse(request, self.change_form_template, context)

    def _payloads(self, row: Any) -> list[payload.Payload]:
        return [
            payload.payload(self.model._meta.get_field(name).verbose_name, text)
            for name in self.payload_columns
            if (text := getattr(row, f"{name}_text")) is not None
        ]

    def _elsewhere(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Go to the row that a job has become, or back to the list."""
        key = self._key(object_id)
        if isinstance(key, int):
            for model in (Job, ArchivedJob, DeadLetter):
                there = model._default_manager.using(get_settings().database)
                may_look = request.user.has_perm(
                    f"pgqueue.view_{model._meta.model_name}"
                )
                if may_look and there.filter(pk=key).exists():
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
        if not self.has_view_permission(request):
            # Asked before the row is: whether it exists is nobody else's business.
            raise PermissionDenied
        key = self._key(unquote(object_id))
        kinds = ContentType.objects.get_for_models(Job, ArchivedJob, DeadLetter)
        if key is not None and self.model in kinds:
            entries = LogEntry.objects.filter(
                object_id=str(key), content_type__in=kinds.values()
            )
            entries = entries.select_related("user").order_by("action_time")
            page = Paginator(entries, SELECTED_ROWS_MAX).get_page(1)
            extra_context = {"action_list": page, **(extra_context or {})}
        return super().history_view(request, object_id, extra_context)

    # Where -----------------------------------------------------------------------

    def list_url(self, request: HttpRequest) -> str:
        """Return the list, with the filters that the user came from."""
        preserved = self.get_preserved_filters(request)
        return add_preserved_filters(
            {"preserved_filters": preserved, "opts": self.opts},
            self._url(self.model, "changelist"),
        )

    def act_url(self, request: HttpRequest, name: str, row: Any) -> str:
        """Return where to POST to do *name* with *row*; it comes back to the list."""
        preserved = self.get_preserved_filters(request)
        url = self._url(self.model, name, row.pk)
        return f"{url}?{preserved}" if preserved else url

    def _url(self, model: type[Model], name: str, *args: Any) -> str:
        return reverse(
            f"admin:pgqueue_{model._meta.model_name}_{name}",
            args=args,
            current_app=self.admin_site.name,
        )
