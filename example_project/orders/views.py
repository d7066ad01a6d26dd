"""The pages: products and orders, and how far the saga of one order is."""

from __future__ import annotations

import json
from typing import NamedTuple

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from django_pgqueue import WorkflowNotFound, WorkflowResult
from django_pgqueue.models import Workflow
from orders.acceptance import accept_order
from orders.models import EMAIL_MAX, Order, Product

ROWS_MAX = 50
OVER = ("succeeded", "compensated")  # No page of such a saga needs to be renewed.
GONE = "not kept any more"


class Step(NamedTuple):
    """A step as the page shows it."""

    name: str
    undoes: str
    state: str
    started_at: object
    finished_at: object
    error: str


@require_safe
@never_cache
def order_list(request: HttpRequest) -> HttpResponse:
    """Show what can be ordered, and the latest orders with how far they are."""
    orders = list(Order.objects.select_related("product").order_by("-pk")[:ROWS_MAX])
    sagas = Workflow.objects.in_bulk([order.saga for order in orders])
    rows = [
        (order, saga.state if (saga := sagas.get(order.saga)) else GONE)
        for order in orders
    ]
    return render(
        request,
        "orders/order_list.html",
        {"products": Product.objects.all(), "rows": rows},
    )


@require_POST
def place(request: HttpRequest) -> HttpResponse:
    """Accept an order, and show it."""
    email = request.POST.get("email", "")
    try:
        validate_email(email)
    except ValidationError:
        return HttpResponse("An order needs an e-mail address.", status=400)
    if len(email) > EMAIL_MAX or not email.isascii():
        return HttpResponse("No mail server takes that address.", status=400)
    number = request.POST.get("product", "")
    if not (number.isascii() and number.isdecimal() and len(number) < 19):
        return HttpResponse("An order needs a product.", status=400)
    product = get_object_or_404(Product, pk=int(number))
    return redirect("order", accept_order(product, email).pk)


@require_safe
@never_cache
def order(request: HttpRequest, order_id: int) -> HttpResponse:
    """Show one order, and what its saga has done so far."""
    found = get_object_or_404(Order.objects.select_related("product"), pk=order_id)
    try:
        state, steps = _run(found)
    except WorkflowNotFound:
        state, steps = GONE, []
    return render(
        request,
        "orders/order.html",
        {
            "order": found,
            "state": state,
            "steps": steps,
            "is_over": state in OVER or state == GONE,
        },
    )


def _run(order: Order) -> tuple[str, list[Step]]:
    """Return the state of an order's saga, and its steps in the order of their ids."""
    saga = WorkflowResult(order.saga or 0)
    state = saga.status  # First: a page of one that is over is not renewed.
    rows = list(saga.steps())
    names = {row.id: row.name for row in rows}
    steps = [
        Step(
            row.name,
            names.get(row.compensates or 0, ""),
            row.state,
            row.started_at,
            row.finished_at,
            json.loads(row.error).get("message", "") if row.error else "",
        )
        for row in rows
    ]
    return state, steps
