"""What the doctor says of queues that may hold so many jobs."""

from __future__ import annotations

import pytest
from django.utils import timezone

from django_pgqueue.models import Queue
from tests.harness.factories import make_jobs
from tests.management.test_doctor import database, examined, make_worker, trouble

__all__ = ["database"]  # A fixture.


def noted(name, jobs):
    Queue.objects.create(name=name, depth=jobs, depth_at=timezone.now())


@pytest.fixture
def limits(settings):
    """A function: queues have these limits."""

    def limits(on_full="refuse", **queues):
        settings.PGQUEUE = {
            "QUEUES": {
                name: {"depth_max": most, "on_full": on_full}
                for name, most in queues.items()
            }
        }

    return limits


def test_queues_that_are_nearly_full_are_told_the_fullest_first(limits):
    """From four fifths on, with what becomes of those who enqueue."""
    limits(mail=100_000, sms=10, push=10)
    make_worker()
    noted("mail", 82_113)
    make_jobs(12, queue="sms")
    make_jobs(7, queue="push")

    finding = trouble("queue_depth")
    assert "warning" == finding["severity"]
    assert finding["what"] == (
        "Queues hold nearly as many jobs as they may, or as many: sms 10+ of 10, mail "
        "82,113 of 100,000. sms, when full, refuses jobs."
    )
    assert {"sms": 11, "mail": 82_113} == finding["value"]
    assert {"sms": 10, "mail": 100_000} == finding["limit"]
    assert "pgqueue_worker --queues sms" in finding["way_out"]
    assert "PGQUEUE['QUEUES']['sms']['depth_max']" in finding["way_out"]


@pytest.mark.parametrize(
    "on_full, does",
    [
        ("block", "lets those wait who enqueue, and then refuses jobs."),
        ("signal", "takes jobs all the same."),
    ],
)
def test_it_tells_what_a_full_queue_does(limits, on_full, does):
    """As the settings say."""
    limits(on_full, mail=10)
    noted("mail", 8)

    assert trouble("queue_depth")["what"].endswith(does)


def test_a_queue_with_room_is_no_trouble(limits):
    """Below four fifths; and without limits there is nothing to look at."""
    limits(mail=10)
    noted("mail", 7)
    assert "ok" == examined()[1]["queue_depth"]["severity"]

    limits()
    assert "queue_depth" not in examined()[1]
