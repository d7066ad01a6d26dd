"""Names that users chose (tasks, queues, workers, hosts) as cells of a list."""

from __future__ import annotations

from django.utils.html import format_html
from django.utils.safestring import SafeString


def name(text: str | None) -> SafeString | str:
    """Return *text* as a cell that cannot spread over the page; nothing stays ""."""
    return format_html('<span class="pgqueue-name">{}</span>', text) if text else ""
