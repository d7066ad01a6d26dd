"""The link to the overview: first of our app on the index of a site, and beside."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from django.contrib.admin import AdminSite
from django.db.models import Model
from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_pgqueue.models import (
    ConsumerGroup,
    DeadLetter,
    Job,
    Schedule,
    Worker,
    Workflow,
)

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
