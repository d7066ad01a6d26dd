"""
What the templates of the admin load: the overview, links, badges and times.

Django imports the tags of every app at its first template, so the admin itself is
imported when a page uses one of these.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django import template
from django.apps import apps
from django.template import RequestContext

from django_pgqueue.operators import human

register = template.Library()


def _admin(module: str) -> Any:
    return import_module(f"django_pgqueue.admin.{module}")


register.filter("name", lambda text: _admin("cells").name(text))
register.filter("absolute", lambda moment: _admin("moments").absolute(moment))
register.filter("short", lambda moment, clock: _admin("moments").short(moment, clock))
register.filter("since", lambda moment, clock: _admin("moments").since(moment, clock))
register.filter("age", human.age)
register.filter("duration", human.duration)
register.filter("count", human.count)
register.filter("distance", human.distance)


@register.inclusion_tag("admin/pgqueue/overview.html", takes_context=True)
def pgqueue_overview(context: RequestContext) -> dict[str, Any]:
    """Show what the user may see of the overview."""
    found: dict[str, Any] = _admin("overview").overview(context["request"])
    return found


@register.simple_tag(takes_context=True)
def link(
    context: RequestContext, noun: str, text: object, key: Any = None, /, **query: Any
) -> str:
    """Show *text* as a link to a list of the admin or, with a *key*, to a row."""
    model = apps.get_model("pgqueue", noun)
    linked: str = _admin("cells").link_on(
        context["admin_site"], model, text, key, **query
    )
    return linked
