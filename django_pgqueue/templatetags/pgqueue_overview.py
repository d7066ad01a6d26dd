"""The tag that shows the overview on the page of our app, on any admin site."""

from __future__ import annotations

from typing import Any

from django import template
from django.template import RequestContext

register = template.Library()


@register.inclusion_tag("admin/pgqueue/overview.html", takes_context=True)
def pgqueue_overview(context: RequestContext) -> dict[str, Any]:
    """Show what the user may see of the overview."""
    # Django imports the tags of every app at its first template; the page alone needs
    # what is behind this one.
    from django_pgqueue.admin.overview import overview

    return overview(context["request"])
