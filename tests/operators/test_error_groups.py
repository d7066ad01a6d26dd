"""Error groups: which dead letters, and which jobs that retry, failed alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue.models import DeadLetter, Job
from django_pgqueue.operators import error_groups
from django_pgqueue.operators.error_groups import Alike, at_place, groups
from tests.harness.factories import make_dead_letter, make_job

pytestmark = pytest.mark.django_db

LATER = timedelta(hours=1)
DECLINED = "shop.errors.CardDeclined"


def failed(path="shop/pay.py", kind=DECLINED, **entry):
    """An entry of errors, whose last frame in the project is in *path*."""
    traceback = (
        f'  File "/srv/{path}", line 12, in charge\n'
        '  File "/usr/lib/python3.11/socket.py", line 3, in connect\n'
    )
    return {"kind": "error", "type": kind, "traceback": traceback, **entry}


def alike(found):
    return [group.alike for group in found]


def test_dead_letters_are_alike_by_task_reason_class_and_place():
    """The largest group first; a place has no line, and is in the project's code."""
    for number in range(3):
        make_dead_letter(task="shop.pay", errors=[failed(message=f"card {number}")])
    make_dead_letter(task="shop.pay", errors=[failed("shop/refund.py")])
    make_dead_letter(task="shop.pay", errors=[failed()], reason="timeout")
    make_dead_letter(task="shop.pay", errors=[], reason="rejected")

    found, read = groups(DeadLetter.objects.all())

    assert 6 == read
    assert (3, Alike("shop.pay", "exhausted", DECLINED, "shop/pay.py in charge")) == (
        found[0].count,
        found[0].alike,
    )
    assert {
        Alike("shop.pay", "exhausted", DECLINED, "shop/refund.py in charge"),
        Alike("shop.pay", "timeout", DECLINED, "shop/pay.py in charge"),
        Alike("shop.pay", "rejected", "-", "-"),
    } == set(alike(found[1:]))


def test_a_group_says_since_when_until_when_and_how_often():
    """In equal parts of the time that all groups took; its sample is the latest."""
    hours = [timedelta(hours=-hours) for hours in (12, 6, 5.9, 0)]
    letters = [make_dead_letter(errors=[failed()], finished_at=at) for at in hours]
    make_dead_letter(errors=[], finished_at=timedelta(hours=-3))

    largest, other = groups(DeadLetter.objects.all())[0]

    assert largest.sample == letters[-1].pk
    span = largest.latest - largest.first
    assert timedelta(hours=11.9) < span < timedelta(hours=12.1)
    assert largest.clock - largest.latest < timedelta(minutes=1)
    assert (1, 2, 1) == (largest.trend[0], sum(largest.trend[5:7]), largest.trend[-1])
    assert (4, 1) == (sum(largest.trend), sum(other.trend))
    assert error_groups.TREND_PARTS == len(largest.trend)


def test_jobs_that_retry_are_alike_too():
    """They failed when their last error says; one that does not say, when stored."""
    at = "2026-11-20T20:10:00+00:00"
    make_job(
        attempt=1, deliveries=1, visible_at=LATER, errors=[failed(), failed(at=at)]
    )
    job = make_job(
        attempt=1, deliveries=1, visible_at=LATER, errors=[failed("shop/pay.py")]
    )

    (group,), read = groups(Job.objects.all())

    assert (2, 2, "") == (read, group.count, group.alike.reason)
    assert datetime(2026, 11, 20, 20, 10, tzinfo=UTC) == group.first
    assert job.pk == group.sample


def test_rows_of_a_place_are_found():
    """Those without one have a name for it as well."""
    here = make_dead_letter(errors=[failed()]).pk
    make_dead_letter(errors=[failed("shop/refund.py")])
    nowhere = make_dead_letter(errors=[]).pk

    assert [here] == at_place(DeadLetter.objects.all(), "shop/pay.py in charge")
    assert [nowhere] == at_place(DeadLetter.objects.all(), "-")
