"""What failed alike, in the command line: listed, and acted on as one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue.management.cli import acting
from django_pgqueue.models import BulkAct, DeadLetter, Job
from tests.harness.factories import make_dead_letter, make_job
from tests.management.test_pgqueue import DONE, NOTHING, run, told
from tests.operators.test_error_groups import DECLINED, failed

pytestmark = pytest.mark.django_db


def left():
    return set(DeadLetter.objects.values_list("id", flat=True))


def test_dead_letters_are_listed_by_error():
    """A line for each group, and how to send all of it back."""
    for _ in range(2):
        make_dead_letter(task="shop.pay", errors=[failed()])
    sample = make_dead_letter(task="shop.pay", errors=[failed()]).pk
    make_dead_letter(task="shop.send", errors=[], queue="mail")

    status, out, _ = run("dead", "--by", "error")
    first, second = [line.split() for line in out.splitlines()[1:3]]
    assert DONE == status
    assert ["3", "shop.pay", DECLINED, "shop/pay.py", "in", "charge"] == first[:6]
    assert str(sample) == first[-1]
    assert ["1", "shop.send", "-", "-", "exhausted"] == second[:5]
    assert "pgqueue redrive --task TASK --error CLASS" in out

    status, found = told("dead", "--by", "error", "--queue", "mail")
    assert (DONE, 1, True) == (status, found["read"], found["is_complete"])
    assert ["shop.send"] == [group["task"] for group in found["groups"]]
    assert (NOTHING, "Nothing here has failed.\n") == run(
        "dead", "--by", "error", "--queue", "none"
    )[:2]


def test_all_of_a_class_are_sent_back():
    """Without the module, here; others stay."""
    others = {
        make_dead_letter(errors=[failed(kind="shop.errors.NotDeclined")]).pk,
        make_dead_letter(errors=[failed(kind="CardDeclined.inside")]).pk,
        # It is the last one that counts.
        make_dead_letter(errors=[failed(), failed(kind="OSError")]).pk,
    }
    sent = {make_dead_letter(errors=[failed(kind="OSError"), failed()]).pk}

    assert (DONE, "1 job redriven.\n", "") == run(
        "redrive", "--error=CardDeclined", "--yes"
    )
    assert others == left()
    assert sent == set(Job.objects.values_list("id", flat=True))


def test_dead_letters_are_chosen_by_when_they_gave_up():
    """Since a time, or for so long already; in lists and for acts alike."""
    letters = {
        hours: make_dead_letter(finished_at=timedelta(hours=-hours)).pk
        for hours in (0, 1, 3)
    }
    for arguments, expected in (
        (["--since", "2h"], {0, 1}),
        (["--since", "2020-01-31"], {0, 1, 3}),
        (["--age", "30d"], set()),
        (["--since", "4h", "--age", "30m"], {1, 3}),
    ):
        _, listed = told("dead", *arguments)
        chosen = {letters[hours] for hours in expected}
        assert chosen == {letter["id"] for letter in listed["dead_letters"]}
    _, done = told("redrive", *arguments, "--yes")
    assert (2, 0) == (done["redriven"], done["passed_over"])
    assert chosen == set(Job.objects.values_list("id", flat=True))


def test_a_dry_run_says_what_would_be_done():
    """And does nothing, and asks nobody."""
    letters = {make_dead_letter(errors=[failed()]).pk for _ in range(2)}
    job = make_job().pk

    assert (DONE, "2 jobs would be redriven.\n", "") == run(
        "redrive", "--error=CardDeclined", "--dry-run"
    )
    one = min(letters)
    status, out, err = run("redrive", one, job, "--dry-run")
    assert (NOTHING, "1 job would be redriven.\n") == (status, out)
    assert f"Job {job} would not be redriven: it is ready." in err
    assert (DONE, True) == (
        *told("cancel", job, "--dry-run")[:1],
        told("cancel", job, "--dry-run")[1]["dry_run"],
    )
    assert letters == left()
    assert Job.objects.get().cancel_requested_at is None


def test_a_filter_starts_an_act_that_is_listed_shown_and_stopped(monkeypatch):
    """With its pace and who asked; Ctrl+C stops it between two chunks."""
    letters = {make_dead_letter().pk for _ in range(5)}

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(acting.time, "sleep", interrupt)
    assert 130 == run("redrive", "--all", "--yes", "--per-second", 2)[0]
    act = BulkAct.objects.get()
    assert ("stopped", 2, 5, 2) == (act.state, act.done, act.counted, act.per_second)
    assert act.asked_by == act.stopped_by == acting.operator_name()
    assert 3 == len(letters & left())

    status, out, _ = run("acts")
    assert DONE == status
    line = out.splitlines()[1]
    assert [str(act.pk), "redrive", "stopped", "2", "5"] == line.split()[:5]
    _, found = told("acts", "show", act.pk)
    assert [(act.pk, "stopped", 2)] == [
        (row["id"], row["state"], row["done"]) for row in found["acts"]
    ]
    assert NOTHING == run("acts", "stop", act.pk)[0]
    assert NOTHING == run("acts", "show", act.pk + 1)[0]
