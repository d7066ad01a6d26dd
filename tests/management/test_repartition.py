"""`manage.py pgqueue repartition`: what it tells, asks and does."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue.models import Generation, Topic
from tests.log.rows import make_group, make_message, make_topic
from tests.management.test_doctor import examined
from tests.management.test_pgqueue import DONE, NOTHING, USAGE, run
from tests.management.test_topics import Terminal

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("reply, is_done", [("y\n", True), ("n\n", False)])
def test_it_tells_who_reads_and_asks(monkeypatch, reply, is_done):
    """Then what is read besides, and that code has to say so, too."""
    make_topic("orders", partitions=2)
    make_group("orders", "stats")
    make_message("orders")
    monkeypatch.setattr("sys.stdin", Terminal(reply))

    status, out, err = run("repartition", "orders", 3)

    assert "stats" in out
    assert (DONE if is_done else NOTHING) == status
    assert is_done == ("Topic orders has 3 partitions: 2 to 4." in out)
    assert is_done == ("Partitions 0 to 1 are read to their end" in err)
    assert (3 if is_done else 2) == Topic.objects.get().partitions


def test_what_is_no_change_or_cannot_be():
    """Each is said; nothing is written."""
    make_topic("orders", partitions=2)

    status, out, _ = run("repartition", "orders", 2)
    assert (NOTHING, True) == (status, "has 2 partitions already" in out)
    assert NOTHING == run("repartition", "order", 3, "--yes")[0]
    for count in ("0", "257", "many"):
        status, _, err = run("repartition", "orders", count, "--yes")
        assert (USAGE, True) == (status, "a whole number from 1 to 256" in err)
    assert USAGE == run("repartition", "orders", 3)[0]
    assert not Generation.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_doctor_tells_of_a_change_that_does_not_end():
    """Which groups still read what, and since when."""
    make_topic("orders", partitions=2)
    make_group("orders", "stats")
    run("repartition", "orders", 3, "--yes")
    assert "ok" == examined()[1]["topics_former"]["severity"]

    ended_at = Generation.objects.get().ended_at - timedelta(hours=2)
    Generation.objects.update(ended_at=ended_at, last_id=7)
    found = examined()[1]["topics_former"]
    assert ("warning", True) == (found["severity"], "orders/stats" in found["what"])
