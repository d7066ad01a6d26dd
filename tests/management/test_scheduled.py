"""`manage.py pgqueue scheduled`, and what the doctor says of such messages."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue.models import ScheduledMessage
from tests.log.rows import make_scheduled
from tests.management.test_doctor import examined, trouble
from tests.management.test_pgqueue import DONE, NOTHING, USAGE, run, told
from tests.management.test_topics import table

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


def test_they_are_listed_the_next_first():
    """Of a topic or all; secrets are hidden unless they are asked for."""
    late = make_scheduled(
        "orders.reminder", {"id": 7, "api_token": "s3cret"}, run_after=3 * HOUR
    ).pk
    soon = make_scheduled("clicks", 1, key="c7", failures=1, error="token=s3cret").pk

    status, out, _ = run("scheduled")
    _, of_topic = told("scheduled", "--topic", "orders")
    _, shown = told("scheduled", "--show-payload")

    assert DONE == status
    assert "s3cret" not in out
    assert [str(soon), str(late)] == [line[0] for line in table(out)[1:]]
    assert ["clicks", "c7", "1"] == table(out)[1][2:5]
    assert [late] == [each["id"] for each in of_topic["scheduled"]]
    assert "s3cret" not in str(of_topic)
    assert "s3cret" == shown["scheduled"][1]["payload"]["api_token"]
    assert told("scheduled", "--limit", "1")[1]["is_more"]


def test_some_are_cancelled():
    """By their ids; what is not there is told, and the status says so."""
    one, two = make_scheduled().pk, make_scheduled().pk

    assert DONE == run("scheduled", "cancel", str(one))[0]
    status, answer = told("scheduled", "cancel", str(one), str(two))

    assert (NOTHING, {"cancelled": [two], "left": [one]}) == (status, answer)
    assert not ScheduledMessage.objects.exists()
    for text in ("7", "x", "-x", "-" + "9" * 40):
        assert USAGE == run("scheduled", "cancel", text)[0]


def test_the_doctor_tells_of_what_is_late_and_of_what_fails():
    """Nobody leads; or the log refuses them."""
    _, found = examined()
    checks = ("scheduled", "unpublished")
    assert ["ok", "ok"] == [found[name]["severity"] for name in checks]
    make_scheduled(failures=3, error="RaiseException: a curse is on it")
    assert "a curse is on it" in trouble("unpublished")["what"]

    make_scheduled(run_after=-HOUR)
    assert "1 h" in trouble("scheduled")["what"]
