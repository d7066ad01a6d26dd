"""The page of one workflow: the picture of its steps, and the table of them."""

from __future__ import annotations

from typing import Any, cast

from django.contrib.admin import AdminSite
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import BadRequest
from django.http import HttpRequest
from django.utils.http import urlencode

from django_pgqueue.admin import payload
from django_pgqueue.admin.cells import badge
from django_pgqueue.admin.workflow_graph import TABLE, graph, state_in_rows
from django_pgqueue.admin.workflow_steps import StepList, WorkflowSteps
from django_pgqueue.live_states import state_of_step
from django_pgqueue.operators.human import in_utc
from django_pgqueue.operators.workflows import (
    label_of,
    of_id,
)
from django_pgqueue.queues import workflows
from django_pgqueue.tasks import database


def picture_and_steps(
    site: AdminSite, request: HttpRequest, row: Any, *, restart_at: str = ""
) -> dict[str, Any]:
    """
    Return what the page of a workflow shows of its steps.

    Args:
        site: Whose pages it links to.
        request: Whose.
        row: The workflow.
        restart_at: Where it is started anew, by those who may; "": it is not.

    Raises:
        BadRequest: The URL has a place in the table that is none.
    """
    table = WorkflowSteps(
        site,
        row.pk,
        may_see=payload.may_see(request),
        within=row.state,
        restart_at=restart_at,
    )
    try:
        steps = cast("StepList", table.get_changelist_instance(request))
    except IncorrectLookupParameters as error:
        raise BadRequest(str(error)) from error
    asked = steps.filter_form.given("q") or ""
    with database.cursor() as cursor:
        found = [
            each._replace(state=state_of_step(each.state, each.kind, within=row.state))
            for each in workflows.shape(cursor, row.pk)
        ]
    picture = graph(
        found,
        clock=in_utc(row.clock).timestamp(),
        here=next(iter(of_id(asked)), None),
    )
    return {
        "graph": picture,
        "states": [
            (
                f"?{urlencode({'state': state_in_rows(state)})}#{TABLE}",
                badge(state, f"{count:,} {label_of(state)}", f"step-{state}"),
            )
            for state, count in picture.states.items()
        ],
        "cl": steps,
        "table": TABLE,
    }
