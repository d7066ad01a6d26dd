"""Assertions: was this job enqueued? The answer no says what was enqueued instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from django.db import connections
from django.db.models import Count

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import did_you_mean
from django_pgqueue.models import Job
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.enqueuer import Enqueuer
from django_pgqueue.tasks.registry import declared_names
from django_pgqueue.tasks.task import Task
from django_pgqueue.testing import frozen
from django_pgqueue.testing.access import MODELS, as_enqueued, explained
from django_pgqueue.testing.matching import (
    Differences,
    Expectation,
    Parameters,
    call_of,
    specialties,
)

# A task, a task of django.tasks, or the name of one.
Subject = Task[Any, Any] | str | Any

# Jobs, differences and other tasks that a message shows.
JOBS_SHOWN = 5
DIFFERENCES_SHOWN = 10
TASKS_SHOWN = 10


def assert_enqueued(
    task: Subject, /, *args: Any, count: int | None = None, **expected: Any
) -> list[Job]:
    """
    Check that a job of *task* was enqueued; return those that match.

        assert_enqueued(send_receipt, 42)
        assert_enqueued(send_receipt, order_id=42, queue="mail", run_after="1h")

    Looks at every job of the database, also at those that have run since. Arguments
    that are not named may be anything; a parameter may be given by place or by name,
    whatever the call did.

    Args:
        task: The task, or its name.
        args: Positional arguments.
        count: How many there must be; by default one or more.
        expected: Keyword arguments of the task; and queue, priority, max_attempts,
            headers (those keys), tags (those, besides others), run_after, expires. The
            times take a datetime, None, or a duration from the enqueue; priority,
            max_attempts and the times also with __gt, __gte, __lt, __lte. A parameter
            of the task that has the same name as an option comes first.

    Raises:
        AssertionError: There is none, or not as many. The message lists what was
            enqueued instead, the nearest first.
        TypeError: No call of the task could have these arguments.
    """
    __tracebackhide__ = True
    found, others = _stored(task)
    return check_present(found, task, args, expected, count, others)


def assert_not_enqueued(
    task: Subject | None = None, /, *args: Any, **expected: Any
) -> None:
    """
    Check that no such job was enqueued; without a task, that none was at all.

    Args:
        task: As in assert_enqueued, with its other arguments.
        args: Positional arguments.
        expected: Keyword arguments and options.

    Raises:
        AssertionError: There is one; the message shows it.
        TypeError: No call of the task could have these arguments.
    """
    __tracebackhide__ = True
    found, others = _stored(task)
    check_absent(found, task, args, expected, others)


def check_present(
    jobs: Sequence[Job],
    subject: Subject,
    args: Sequence[Any],
    expected: Mapping[str, Any],
    count: int | None,
    others: Mapping[str, int] | None = None,
) -> list[Job]:
    """As assert_enqueued, of *jobs*; *others* counts the jobs of other tasks."""
    __tracebackhide__ = True
    task = resolved(subject)
    if count is not None and "count" in Parameters(task).names:
        # The task has a parameter of that name.
        expected, count = {**expected, "count": count}, None
    expectation = Expectation(task, args, expected)
    ours = [job for job in jobs if job.task in (task.name, *task.aliases)]
    by_difference = [(expectation.differences(job), job) for job in ours]
    matching = [job for differences, job in by_difference if not differences]
    if len(matching) == count or (count is None and matching):
        return matching
    others = _counted(jobs, ours) if others is None else others
    raise AssertionError(
        "\n".join(
            [
                _headline(expectation, matching, count),
                "",
                f"  expected  {expectation}",
                *_matched(expectation, matching, count),
                *_nearest(expectation, by_difference),
                *_besides(others, anything=bool(ours)),
                *_waiting(task),
            ]
        )
    )


def check_absent(
    jobs: Sequence[Job],
    subject: Subject | None,
    args: Sequence[Any],
    expected: Mapping[str, Any],
    others: Mapping[str, int] | None = None,
) -> None:
    """As assert_not_enqueued, of *jobs*."""
    __tracebackhide__ = True
    if subject is None:
        if args or expected:
            raise TypeError("assert_not_enqueued takes arguments only with a task.")
        counted = Counter({**_counted(jobs, []), **(others or {})})
        if not counted:
            return
        shown = [f"  {_line(job)}" for job in jobs[:JOBS_SHOWN]]
        told = _names(counted)
        raise AssertionError("\n".join([f"Jobs were enqueued: {told}.", *shown]))
    task = resolved(subject)
    expectation = Expectation(task, args, expected)
    ours = [job for job in jobs if job.task in (task.name, *task.aliases)]
    matching = [job for job in ours if not expectation.differences(job)]
    if matching:
        lines = _listed(expectation, matching)
        head = f"{_jobs(len(matching))} of {task.name} {_was(len(matching))} enqueued:"
        raise AssertionError("\n".join([head, "", *lines]))


def resolved(subject: Subject) -> Task[Any, Any]:
    """
    Return the task that is meant.

    Raises:
        TypeError: It is no task.
        LookupError: No declared task has the name.
    """
    if isinstance(subject, Task):
        return subject
    name = subject if isinstance(subject, str) else getattr(subject, "module_path", "")
    task = registry.tasks.get(name) if isinstance(name, str) and name else None
    if isinstance(task, Task):
        return task
    if isinstance(subject, str):
        raise LookupError(
            f"No declared task is called {subject!r}."
            f"{did_you_mean(subject, declared_names())}"
        )
    raise TypeError(f"{subject!r} is no task: give what @task made, or its name.")


def _stored(subject: Subject | None) -> tuple[list[Job], dict[str, int]]:
    """Return the jobs of a task wherever they are, and how many others there are."""
    names = None
    if subject is not None:
        task = resolved(subject)
        names = (task.name, *task.aliases)
    alias = get_settings().database
    found: list[Job] = []
    others: Counter[str] = Counter()
    with explained("assert_enqueued()"):
        frozen.pin_new_rows()
        for model in MODELS:
            rows: Any = model._base_manager.using(alias)
            if names is not None:
                found += map(as_enqueued, rows.filter(task__in=names))
                rows = rows.exclude(task__in=names)
            counted = rows.values_list("task").annotate(Count("pk")).order_by()
            others.update(dict(counted))
    return sorted(found, key=lambda job: job.pk), dict(others)


def _headline(
    expectation: Expectation, matching: Sequence[Job], count: int | None
) -> str:
    name = expectation.task.name
    if count is None:
        return f"No such job of {name} was enqueued."
    if not matching:
        return f"No such job of {name} was enqueued, where {count:,} should be."
    found = f"{_jobs(len(matching))} of {name} {_was(len(matching))} enqueued"
    return f"{found}, where {count:,} should be."


def _matched(
    expectation: Expectation, matching: Sequence[Job], count: int | None
) -> list[str]:
    if not matching or count is None:
        return []
    return ["", "as expected:", *_listed(expectation, matching)]


def _nearest(
    expectation: Expectation, by_difference: Sequence[tuple[Differences, Job]]
) -> list[str]:
    """Return the jobs of the task that do not match, the nearest first."""
    near = sorted(
        (pair for pair in by_difference if pair[0]), key=lambda pair: pair[0].distance
    )
    if not near:
        return []
    lines = ["", "enqueued instead, the nearest first:"]
    for differences, job in near[:JOBS_SHOWN]:
        lines.append(f"  {_label(job)}{expectation.describe(job)}")
        told = differences.lines
        lines += [f"      {line}" for line in told[:DIFFERENCES_SHOWN]]
        lines += _more(len(told) - DIFFERENCES_SHOWN, "differences", "      ")
    return lines + _more(len(near) - JOBS_SHOWN, f"jobs of {expectation.task.name}")


def _listed(expectation: Expectation, jobs: Sequence[Job]) -> list[str]:
    shown = [f"  {_label(job)}{expectation.describe(job)}" for job in jobs[:JOBS_SHOWN]]
    return shown + _more(len(jobs) - JOBS_SHOWN, "jobs")


def _besides(others: Mapping[str, int], *, anything: bool) -> list[str]:
    if others:
        what = "of other tasks" if anything else "but jobs of other tasks were"
        return ["", f"{what}: {_names(others)}"]
    return [] if anything else ["", "nothing was enqueued at all"]


def _waiting(task: Task[Any, Any]) -> list[str]:
    """Say so when the job would be enqueued by a commit that never comes."""
    waiting = sum(
        _enqueues(hook, task)
        for connection in connections.all(initialized_only=True)
        for _, hook, *_ in connection.run_on_commit
    )
    if not waiting:
        return []
    return [
        "",
        f"{waiting} on_commit().delay() of it {_wait(waiting)} for a commit,",
        "which a TestCase never makes:",
        "run the code in captureOnCommitCallbacks(execute=True)",
    ]


def _enqueues(hook: Any, task: Task[Any, Any]) -> bool:
    call = hook.func if isinstance(hook, partial) else hook
    enqueuer = getattr(call, "__self__", None)
    return isinstance(enqueuer, Enqueuer) and enqueuer._task is task


def _counted(jobs: Sequence[Job], without: Sequence[Job]) -> dict[str, int]:
    left_out = {job.pk for job in without}
    return dict(Counter(job.task for job in jobs if job.pk not in left_out))


def _line(job: Job) -> str:
    return "  ".join([f"{_label(job)}{job.task}({call_of(job)})", *specialties(job)])


def _label(job: Job) -> str:
    return f"job {job.pk}: "


def _names(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    told = [f"{name} ({count:,})" for name, count in ordered[:TASKS_SHOWN]]
    if len(ordered) > TASKS_SHOWN:
        told.append(f"and {len(ordered) - TASKS_SHOWN:,} more tasks")
    return ", ".join(told)


def _more(count: int, what: str, indent: str = "  ") -> list[str]:
    return [f"{indent}and {count:,} more {what}"] if count > 0 else []


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _wait(count: int) -> str:
    return "waits" if count == 1 else "wait"
