"""Where a page leads that says: run this pipeline job."""

from __future__ import annotations

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

from django_pgqueue.admin.acts import may
from django_pgqueue.admin.run_acts import PERMISSIONS
from django_pgqueue.models import PipelineRun


def run_url(site: AdminSite, request: HttpRequest, job: str) -> str | None:
    """Return the form that runs *job*; None for those who may not, or have no page."""
    if not site.is_registered(PipelineRun):
        return None
    if not may(request, "view_pipelinerun", *PERMISSIONS):
        return None
    there = reverse("admin:pgqueue_pipelinerun_run", current_app=site.name)
    return f"{there}?{urlencode({'job': job})}"
