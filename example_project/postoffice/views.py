"""What clients and people see: the API in JSON, one page, and a health URL."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any, cast

from django.core.cache import cache
from django.core.exceptions import RequestDataTooBig
from django.db import Error
from django.db.models import Count, QuerySet, Sum
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from django_pgqueue.models import Job, Worker
from postoffice.acceptance import accept
from postoffice.drafts import Problem, Refused, read_drafts
from postoffice.models import EmailMessage, Status
from postoffice.replies import read_reply, take

PAGE_ROWS = 50
PAGE_ROWS_MAX = 200
REPLIES_MAX = 50  # Told with a mail, the newest.
COUNTS_SECONDS = 1  # How old the counts may be: however many pages poll, one count.
WORKER_SECONDS = 60  # Without a heartbeat for so long, a worker is taken for dead.


@method_decorator([csrf_exempt, never_cache], name="dispatch")
class Messages(View):
    """
    /messages/: POST accepts mails, GET lists them.

    csrf_exempt, since clients are programs without cookies, and since no browser posts
    application/json across sites unasked. A service that strangers can reach needs
    authentication here.
    """

    def post(self, request: HttpRequest) -> JsonResponse:
        """Answer 202 with the ids, or 4xx with what is wrong and nothing stored."""
        if request.content_type != "application/json":
            return problems(415, Problem(None, None, "Post application/json."))
        try:
            drafts = read_drafts(request.body)
        except RequestDataTooBig as error:
            return problems(413, Problem(None, None, str(error)))
        except Refused as refused:
            return problems(400, *refused.problems)

        ids = accept(drafts)
        response = JsonResponse({"ids": ids}, status=202)
        if len(ids) == 1:
            response["Location"] = reverse("message", args=ids)
        return response

    def get(self, request: HttpRequest) -> JsonResponse:
        """Answer one page of mails, newest first, and the counts of all."""
        try:
            rows, following = page(request)
        except ValueError as error:
            return problems(400, Problem(None, *error.args))
        return JsonResponse(
            {
                "messages": [summary(message) for message in rows],
                "next": following,
                "counts": counts(),
            }
        )


@method_decorator([csrf_exempt, never_cache], name="dispatch")
class Replies(View):
    """
    /messages/{id}/replies/: the mail server tells what has come back to a mail.

    However often it tells: 201 the first time, 200 from then on. csrf_exempt, and to be
    authenticated, as Messages.
    """

    def post(self, request: HttpRequest, email_id: int) -> JsonResponse:
        """Answer whether it was new, or 4xx with what is wrong and nothing stored."""
        if request.content_type != "application/json":
            return problems(415, Problem(None, None, "Post application/json."))
        try:
            told = read_reply(request.body)
        except RequestDataTooBig as error:
            return problems(413, Problem(None, None, str(error)))
        except Refused as refused:
            return problems(400, *refused.problems)
        found = EmailMessage.objects.filter(pk=email_id).first()
        if found is None:
            return problems(404, Problem(None, None, f"There is no mail {email_id}."))
        is_new = take(found, told)
        return JsonResponse({"is_new": is_new}, status=201 if is_new else 200)


@require_safe
@never_cache
def message(request: HttpRequest, email_id: int) -> JsonResponse:
    """GET /messages/{id}/: everything about one mail."""
    found = EmailMessage.objects.filter(pk=email_id).first()
    if found is None:
        return problems(404, Problem(None, None, f"There is no mail {email_id}."))
    replies = found.replies.order_by("-pk").values("sender", "text", "received_at")
    return JsonResponse(
        summary(found)
        | {"cc": found.cc, "bcc": found.bcc, "body": found.body, "job": found.job}
        | {"replies": list(replies[:REPLIES_MAX])}
    )


@require_safe
@never_cache
def message_list(request: HttpRequest) -> HttpResponse:
    """The page: it is filled here, and then kept up to date by page.js."""
    try:
        rows, following = page(request)
    except ValueError:
        return HttpResponse("Follow the links of the page.", status=400)
    counted = counts()
    return render(
        request,
        "postoffice/messages.html",
        {
            "rows": [summary(message) for message in rows],
            "next": following,
            "is_first": "before" not in request.GET,
            "counts": counted,
            "total": sum(counted[status] for status in Status.values),
            "status": request.GET.get("status", ""),
        },
    )


@require_safe
@never_cache
def health(request: HttpRequest) -> JsonResponse:
    """
    For load balancers and people: 503 when mails cannot be accepted.

    Without a worker they can: they wait in the database. So that is told, not failed.
    """
    try:
        alive = Worker.objects.filter(
            heartbeat_at__gt=timezone.now() - timedelta(seconds=WORKER_SECONDS)
        ).count()
        return JsonResponse(
            {
                "status": "ok" if alive else "no worker",
                "workers": alive,
                "jobs": Job.objects.count(),
                **counts(),
            }
        )
    except Error as error:
        return JsonResponse(
            {"status": "no database", "error": type(error).__name__}, status=503
        )


def page(request: HttpRequest) -> tuple[list[EmailMessage], int | None]:
    """
    Return one page of mails, newest first, and where the next one starts.

    Pages start at an id (``?before=``) and not at a number of rows to skip: page 1,000
    costs what page 1 does, and new mails shift nothing.

    Raises:
        ValueError: (parameter, what is wrong with it).
    """
    rows: QuerySet[EmailMessage] = EmailMessage.objects.order_by("-pk").defer("body")
    limit = number(request, "limit", PAGE_ROWS, PAGE_ROWS_MAX)
    if "before" in request.GET:
        rows = rows.filter(pk__lt=number(request, "before", 1, 2**63 - 1))
    if status := request.GET.get("status"):
        if status not in Status.values:
            raise ValueError("status", f"One of {', '.join(Status.values)}.")
        rows = rows.filter(status=status)
    found = list(rows[: limit + 1])
    following = found[limit - 1].pk if len(found) > limit else None
    return found[:limit], following


def number(request: HttpRequest, name: str, default: int, most: int) -> int:
    """Return the whole number from 1 to *most* in the query; else ValueError."""
    text = request.GET.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise ValueError(name, "A whole number.")
    if not 1 <= int(text) <= most:
        raise ValueError(name, f"From 1 to {most:,}.")
    return int(text)


def counts() -> dict[str, int]:
    """Return how many mails there are of each status, and the duplicates noticed."""

    def count() -> dict[str, int]:
        by_status = dict.fromkeys(Status.values, 0)
        rows = EmailMessage.objects.values_list("status").annotate(Count("pk"))
        by_status.update(rows.order_by())
        noticed = EmailMessage.objects.filter(duplicates__gt=0)
        total = noticed.aggregate(total=Sum("duplicates"))["total"]
        return {**by_status, "duplicates": total or 0}

    # Typed as if it might be None, which it is for a default of None alone.
    counted = cache.get_or_set("postoffice.counts", count, COUNTS_SECONDS)
    return cast("dict[str, int]", counted)


def summary(message: EmailMessage) -> dict[str, Any]:
    """Return what a list shows of a mail."""
    return {
        "id": message.pk,
        "url": reverse("message", args=[message.pk]),
        "status": message.status,
        "subject": message.subject,
        "to": message.to,
        "error": message.error,
        "duplicates": message.duplicates,
        "created_at": message.created_at.isoformat(timespec="milliseconds"),
        "updated_at": message.updated_at.isoformat(timespec="milliseconds"),
    }


def problems(status: int, *found: Problem) -> JsonResponse:
    """Return an answer that says what is wrong."""
    return JsonResponse(
        {"errors": [asdict(problem) for problem in found]}, status=status
    )
