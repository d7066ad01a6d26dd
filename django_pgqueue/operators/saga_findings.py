"""Saga findings: which need a human, and which began with other steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django_pgqueue.operators.findings import Finding, finding, named
from django_pgqueue.queues.doctor import StuckSaga

# A compensation that has failed as often, over about a quarter of an hour, may not
# succeed by itself.
FAILURES_MAX = 10

# Sagas that compensate, looked at.
COMPENSATING_MAX = 10_000


def of_sagas(stuck: Sequence[StuckSaga], *, tells_keys: bool = True) -> Finding:
    """Are there sagas that do not get on with undoing what they have done?"""
    told = named([_told(each, tells_keys=tells_keys) for each in stuck])
    dead = [each for each in stuck if each.state == "dead"]
    return finding(
        check="sagas",
        wrong=stuck,
        severity="error" if dead else "warning",
        what=f"{len(stuck):,} saga{' does' if len(stuck) == 1 else 's do'} not get on "
        f"with undoing: {told}.",
        right="Every saga that compensates gets on with it.",
        value=[each.id for each in stuck],
        limit=FAILURES_MAX,
        way_out="Fix the cause, then manage.py pgqueue flows retry SAGA. Or undo it by "
        "hand, then manage.py pgqueue flows resolve SAGA. The page of the saga in the "
        "admin does either."
        if dead
        else "See why, by manage.py pgqueue show JOB. It is tried until it succeeds; "
        "manage.py pgqueue retry JOB tries at once.",
    )


def of_versions(others: Mapping[str, int]) -> Finding:
    """
    Do sagas run that began with other steps than are declared now?

    None of it is wrong: they keep theirs. Whoever changes a saga wants to know.

    Args:
        others: How many have not ended, by name.
    """
    told = named([f"{name} ({count:,})" for name, count in others.items()])
    return Finding(
        check="saga_versions",
        severity="ok",
        what=f"Sagas under way that began with other steps than are declared now, and "
        f"keep them: {told}."
        if others
        else "Every saga under way began with the steps that are declared now.",
        value=dict(others),
    )


def _told(saga: StuckSaga, *, tells_keys: bool) -> str:
    name = f"{saga.name} {saga.key}" if saga.key and tells_keys else saga.name
    is_dead = saga.state == "dead"
    how = "is dead" if is_dead else f"has failed {saga.failures:,} times"
    undo = f"its {saga.compensation}, job {saga.job}, {how}"
    return f"{name} (saga {saga.id}: {undo})"
