"""Pages of the admin, asked for one by one."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib import admin

# Of rows that a test has made with these numbers.
ROWS = ["job/9000001", "archivedjob/9000002", "deadletter/9000003"]


def assert_pages_answer(client: Any) -> None:
    """Get the overview, every list, and the pages of three rows."""
    models = apps.get_app_config("pgqueue").get_models()
    lists = [m._meta.model_name for m in models if admin.site.is_registered(m)]
    assert 10 <= len(lists)
    for page in ["", *(f"{name}/" for name in lists), *(f"{r}/change/" for r in ROWS)]:
        assert 200 == client.get(f"/admin/pgqueue/{page}").status_code, page
