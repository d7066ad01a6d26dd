"""Views: what a project may put into its URLconf."""

from __future__ import annotations

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe


@transaction.non_atomic_requests
@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """
    Tell Prometheus what the database says of all jobs, groups and workers.

        path("metrics", metrics)

    Whoever gets there reads names of queues, tasks, topics and groups: protect it. The
    database is read at most once in 5 s by each process; while it cannot be, the
    answer is ``pgqueue_up 0``.

    Raises:
        MissingExtra: prometheus-client is not installed: the extra [prometheus].
    """
    from django_pgqueue.prometheus.families import of_fleet
    from django_pgqueue.prometheus.fleet import FLEET
    from django_pgqueue.prometheus.text import answer

    accept = request.headers.get("Accept", "")
    kind, body = answer(of_fleet(FLEET.look()), accept)
    return HttpResponse(body, content_type=kind)
