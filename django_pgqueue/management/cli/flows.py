"""pgqueue flows: workflows and their steps; cancel, retry, restart, resolve."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast, Now

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import WorkflowNotFound, did_you_mean
from django_pgqueue.live_states import LIVE_WORKFLOWS, UNNEEDED, state_of_step
from django_pgqueue.log.browse import LOOK_ROWS_MAX
from django_pgqueue.management.cli.acting import operator_name
from django_pgqueue.management.cli.output import (
    EXIT_DONE,
    EXIT_NOTHING,
    EXIT_USAGE,
    Output,
)
from django_pgqueue.management.cli.words import add_limit, job_id, plain_text
from django_pgqueue.models import Step, Workflow
from django_pgqueue.models.workflow import StepState, WorkflowKind, WorkflowState
from django_pgqueue.operators.filters import narrow
from django_pgqueue.operators.human import (
    distance,
    duration,
    exact,
    last_error,
    named,
    shown,
)
from django_pgqueue.operators.paging import floor_of, in_order
from django_pgqueue.operators.workflows import (
    NOT_NEEDED,
    STEP_COLUMNS,
    STEPS,
    WORKFLOW_COLUMNS,
    WORKFLOWS,
    batches_of,
    error_of,
    is_live,
    is_of_other_steps,
    of_key,
    progress,
)
from django_pgqueue.tasks import database
from django_pgqueue.tasks import operate_workflows as operate
from django_pgqueue.workflows.versions import others_under_way

HELP = (
    "List workflows, the newest first; show the steps of one; cancel one, retry its "
    "dead steps, start one anew, or let a saga go on."
)

LIMIT_DEFAULT = 50

# That are named, of those in a batch.
BATCHES_MAX = 20


def add_arguments(parser: Any) -> None:
    """Declare what is done with which workflow; nothing said lists them, by filters."""
    parser.add_argument(
        "words",
        nargs="*",
        metavar="WORD",
        help="ID: show its steps; cancel ID; retry ID: redrive the dead letters of "
        "its steps; restart ID: start it anew with the results that it has; resolve "
        "ID: a saga's dead compensation was done by hand; nothing, or list: list "
        "workflows.",
    )
    parser.add_argument(
        "--state",
        type=plain_text,
        metavar="STATE",
        help=f"Workflows in this state: {', '.join(WorkflowState.values)}; with an ID, "
        f"its steps: {', '.join(StepState.values)}.",
    )
    parser.add_argument(
        "--name",
        type=plain_text,
        metavar="TEXT",
        help="Whose name contains this, in letters of either case; with an ID, steps.",
    )
    parser.add_argument(
        "--key", type=plain_text, metavar="KEY", help="With this whole key."
    )
    parser.add_argument(
        "--reason",
        type=plain_text,
        default="",
        metavar="TEXT",
        help="With resolve: why, for whoever looks at the job later.",
    )
    parser.add_argument(
        "--step",
        type=job_id,
        metavar="JOB",
        help="With restart: this step runs again, with all that comes after it.",
    )
    add_limit(parser, LIMIT_DEFAULT)
    parser.add_argument(
        "--before", type=job_id, metavar="ID", help="Of workflows: go on below this id."
    )
    parser.add_argument(
        "--after", type=job_id, metavar="ID", help="Of steps: go on above this id."
    )


def run(options: dict[str, Any], out: Output) -> int:
    """List workflows, or do what is asked for with one."""
    words = options["words"]
    if words in ([], ["list"]):
        return _list(options, out)
    *verb, text = words
    if verb == [] and text not in ACTIONS:
        return _show(_id(text), options, out)
    if len(verb) != 1 or verb[0] not in ACTIONS:
        actions = ", ".join(f"{name} ID" for name in ACTIONS)
        raise CommandError(
            f"Say flows, flows ID, or one of: {actions}.", returncode=EXIT_USAGE
        )
    row = _find(_id(text))
    if row is None:
        return _missing(_id(text), out)
    return ACTIONS[verb[0]](row.pk, options, out)


def _id(text: str) -> int:
    try:
        return job_id(text)
    except Exception:
        raise CommandError(
            f"{text!r} is no id of a workflow, such as 42, and no action of: "
            f"{', '.join(ACTIONS)}.{did_you_mean(text, list(ACTIONS))}",
            returncode=EXIT_USAGE,
        ) from None


def _check_state(state: str | None, states: Collection[str], what: str) -> None:
    if state is not None and state not in states:
        raise CommandError(
            f"{state!r} is no state of a {what}; there are {', '.join(states)}."
            f"{did_you_mean(state, list(states))}",
            returncode=EXIT_USAGE,
        )


# Workflows ---------------------------------------------------------------------------


def _rows() -> QuerySet[Any]:
    rows = Workflow.objects.using(get_settings().database)
    return rows.only(*WORKFLOW_COLUMNS).annotate(clock=Now())


def _find(workflow: int) -> Any:
    return _rows().filter(pk=workflow).first()


def _missing(workflow: int, out: Output) -> int:
    if out.as_json:
        out.json({"workflow": None})
    else:
        out.line(str(WorkflowNotFound(workflow)))
    return EXIT_NOTHING


def _list(options: dict[str, Any], out: Output) -> int:
    _check_state(options["state"], WorkflowState.values, "workflow")
    limit = options["limit"]
    asked = {name: options[name] for name in ("state", "name") if options[name]}
    with in_order():
        rows, floor = _rows(), None
        if options["before"] is not None:
            rows = rows.filter(pk__lt=options["before"])
        if options["key"] is not None:
            rows = rows.filter(pk__in=of_key(options["key"]))
        elif asked:
            floor = floor_of(rows)
        chosen = narrow(rows, WORKFLOWS, asked).filter(pk__gte=floor or 0)
        found = list(chosen.order_by("-pk")[: limit + 1])
    is_more = len(found) > limit
    found = found[:limit]
    onward = found[-1].pk if is_more else floor
    with database.cursor() as cursor:
        others = others_under_way(cursor)
    if out.as_json:
        told = {"workflows": list(map(_as_json, found)), "next": onward}
        out.json({**told, "began_with_other_steps": others})
    elif found:
        out.table(list(map(_row, found)))
    else:
        out.line("No workflow matches." if asked else "There is no workflow.")
    if not out.as_json and onward is not None:
        more = "More" if is_more else f"{LOOK_ROWS_MAX:,} were looked through"
        out.note(f"{more}: --before {onward}")
    if not out.as_json and others:
        names = named([f"{name} ({count:,})" for name, count in others.items()])
        out.note(f"Under way, begun with other steps than are declared now: {names}")
    is_asked = asked or options["key"] is not None
    return EXIT_DONE if found or not is_asked else EXIT_NOTHING


def _state(row: Any) -> str:
    is_asked = row.state == WorkflowState.RUNNING and row.cancel_requested_at
    return "running, asked to stop" if is_asked else str(row.state)


def _took(row: Any) -> str:
    end = row.clock if is_live(row) else row.finished_at or row.clock
    return _length(end - row.created_at)


def _length(length: timedelta) -> str:
    return duration(length.total_seconds())


def _row(row: Any) -> dict[str, object]:
    return {
        "id": row.pk,
        "state": _state(row),
        "name": row.name,
        "steps": progress(row),
        "took": _took(row),
        "started": distance(row.created_at, row.clock),
        "key": row.key,
    }


def _as_json(row: Any) -> dict[str, Any]:
    return {"id": row.pk, **{name: getattr(row, name) for name in WORKFLOW_COLUMNS}}


# Steps -------------------------------------------------------------------------------


def _show(workflow: int, options: dict[str, Any], out: Output) -> int:
    _check_state(options["state"], StepState.values, "step")
    row = _find(workflow)
    if row is None:
        return _missing(workflow, out)
    steps = _steps(workflow, options)
    limit = options["limit"]
    onward = steps[limit - 1].pk if len(steps) > limit else None
    steps = steps[:limit]
    if out.as_json:
        told = {"workflow": _as_json(row), "steps": list(map(_step_as_json, steps))}
        out.json({**told, "next": onward})
        return EXIT_DONE
    out.line(f"Workflow {row.pk} is {_state(row)}")
    out.facts(
        {
            "name": row.name,
            "kind": row.kind,
            "key": row.key,
            "steps that ended": progress(row),
            "dead": row.dead or None,
            "started": exact(row.created_at, row.clock),
            "ended": None if is_live(row) else exact(row.finished_at, row.clock),
            "took": _took(row),
            "deadline": exact(row.deadline_at, row.clock),
            "cancel asked": exact(row.cancel_requested_at, row.clock),
            "by its deadline": "yes" if row.is_overdue else None,
            "restarted from": row.restarted_from,
            "part of": row.parent_id,
            "batches in it": _batches_in(row),
            "version": _version(row),
        }
    )
    out.line()
    if steps:
        out.table([_step_row(step, within=row.state) for step in steps])
    else:
        out.line("No step matches.")
    if onward is not None:
        out.note(f"More: --after {onward}")
    return EXIT_DONE


def _version(row: Any) -> str | None:
    if not is_of_other_steps(row):
        return None if row.version is None else str(row.version)
    return f"{row.version}: began with other steps than are declared now, keeps them"


def _batches_in(row: Any) -> str | None:
    if row.kind != WorkflowKind.BATCH:
        return None
    ids = batches_of(row.pk, BATCHES_MAX + 1)
    more = ", …" if len(ids) > BATCHES_MAX else ""
    return ", ".join(map(str, ids[:BATCHES_MAX])) + more or None


def _steps(workflow: int, options: dict[str, Any]) -> list[Any]:
    """Return one more step than is shown, if there are so many."""
    rows = Step.objects.using(get_settings().database).filter(workflow_id=workflow)
    asked = {"state": options["state"], "q": options["name"]}
    chosen = narrow(rows, STEPS, {name: said for name, said in asked.items() if said})
    chosen = chosen.filter(pk__gt=options["after"] or 0).only(*STEP_COLUMNS)
    # As text: whatever stands there.
    chosen = chosen.annotate(clock=Now(), error_text=Cast("error", TextField()))
    with in_order():
        return list(chosen.order_by("pk")[: options["limit"] + 1])


def _step_row(step: Any, *, within: str) -> dict[str, object]:
    state = state_of_step(step.state, step.kind, within=within)
    return {
        "job": "" if step.task is None else step.pk,
        "state": NOT_NEEDED if state == UNNEEDED else state,
        "step": step.name if step.kind == "step" else f"{step.name} ({step.kind})",
        "started": distance(step.started_at, step.clock),
        "took": _step_took(step),
        "error": _error(step),
    }


def _step_took(step: Any) -> str:
    if step.started_at is None or step.task is None:
        return ""
    return _length((step.finished_at or step.clock) - step.started_at)


def _error(step: Any) -> str:
    found = error_of(step.error_text)
    return "" if found is None else last_error(found.type, found.reason, found.message)


def _step_as_json(step: Any) -> dict[str, Any]:
    told = {name: getattr(step, name) for name in STEP_COLUMNS}
    return {"id": step.pk, **told, "error": _error(step) or None}


# Acts --------------------------------------------------------------------------------


def _cancel(workflow: int, options: dict[str, Any], out: Output) -> int:
    state = operate.cancel(workflow, by=operator_name())
    stops = (
        ": its jobs that run were asked to stop, and a saga undoes what it has done"
        if state in LIVE_WORKFLOWS
        else ""
    )
    return out.answer(
        {"workflow": workflow, "cancelled": state is not None, "state": state},
        state,
        f"Workflow {workflow} is {shown(state)}{stops}.",
        f"Workflow {workflow} was left as it is: it has ended, or was asked to stop "
        f"before.",
    )


def _retry(workflow: int, options: dict[str, Any], out: Output) -> int:
    """Retry dead steps, so many in a transaction."""
    done: list[int] = []
    found = operate.retry(workflow)
    done += found.done
    while found.is_more and found.done:
        found = operate.retry(workflow)
        done += found.done
    steps = f"{len(done):,} dead step{'' if len(done) == 1 else 's'}"
    status = out.answer(
        {"workflow": workflow, "retried": done, "left": list(found.left)},
        done,
        f"{steps} of workflow {workflow} went back to the queues.",
        f"Workflow {workflow} has no dead step that can go back to its queue.",
    )
    if found.left and not out.as_json:
        left = ", ".join(map(str, found.left[:20]))
        out.note(f"Without a dead letter that can be redriven: {left}.")
    return status


def _restart(workflow: int, options: dict[str, Any], out: Output) -> int:
    try:
        anew = operate.restart(workflow, step=options["step"])
    except LookupError as error:
        raise CommandError(str(error), returncode=EXIT_USAGE) from None
    return out.answer(
        {"workflow": workflow, "restarted_as": anew},
        anew,
        f"Workflow {workflow} was started anew, as workflow {anew}.",
        f"Workflow {workflow} was left as it is: only a chain, a group, a chord or a "
        f"flow that has ended is started anew.",
    )


def _resolve(workflow: int, options: dict[str, Any], out: Output) -> int:
    reason = options["reason"]
    done = operate.resolve(workflow, by=operator_name(), reason=reason)
    return out.answer(
        {"workflow": workflow, "resolved": done},
        done,
        f"Workflow {workflow} goes on: job {', '.join(map(str, done))} was set aside.",
        f"Workflow {workflow} waits for nobody.",
    )


ACTIONS: dict[str, Callable[[int, dict[str, Any], Output], int]] = {
    "cancel": _cancel,
    "retry": _retry,
    "restart": _restart,
    "resolve": _resolve,
}
