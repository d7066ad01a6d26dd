"""Queue plan: what --queues and --queue-order say, for any name."""

from __future__ import annotations

import re

import pytest

from django_pgqueue.worker.queue_plan import (
    CAP_MAX,
    WEIGHT_MAX,
    read_plan,
)

NAME = "x" * 63


def plan(text, order=None):
    return read_plan(tuple(text.split(",")) if text else (), order)


def served(a_plan, *names):
    return [name for name in names if a_plan.serves(name)]


def test_nothing_said_is_all_queues_alike():
    """By priority, without weights and caps."""
    every = plan("")

    assert every.is_open
    assert not every.has_caps
    assert "priority" == every.order
    assert [] == every.named
    assert (1, None, 0) == (every.weight("a"), every.cap("a"), every.place("a"))
    assert every.serves("anything")


@pytest.mark.parametrize(
    "text, names",
    [
        ("mail", ["mail"]),
        ("mail,report", ["mail", "report"]),
        ("mail*", ["mail", "mail.bulk", "mail.bulk.eu", "mailing"]),
        ("mail.*", ["mail.bulk", "mail.bulk.eu"]),
        ("mail.bulk*,-mail.bulk.eu", ["mail.bulk"]),
        ("*,-mail*", ["report"]),
        ("-mail*", ["report"]),
        ("*,-mail*,mail.bulk", ["mail.bulk", "report"]),
        ("-mail*,mail.bulk", ["mail.bulk"]),
        (
            "*,-mail.*,mail.bulk*,-mail.bulk.eu",
            ["mail", "mail.bulk", "mailing", "report"],
        ),
    ],
)
def test_the_entry_that_fits_best_decides(text, names):
    """The name itself, else the longest beginning; whatever stands first."""
    every = ["mail", "mail.bulk", "mail.bulk.eu", "mailing", "report"]

    assert names == served(plan(text), *every)
    backwards = ",".join(reversed(text.split(",")))
    assert names == served(plan(backwards), *every)


@pytest.mark.parametrize(
    "text, order, expected",
    [
        ("a,b", None, "priority"),
        ("a=1,b", None, "weighted"),
        ("a,b", "weighted", "weighted"),
        ("a,b:2", "strict", "strict"),
        ("a:2,b", None, "priority"),
    ],
)
def test_a_weight_makes_the_order_weighted(text, order, expected):
    """Unless the order is said."""
    assert expected == plan(text, order).order


@pytest.mark.parametrize(
    "text, told",
    [
        ("", "all"),
        ("a,b", "a, b"),
        ("a=3:4,-c,*", "a=3:4, -c, * (weighted order)"),
    ],
)
def test_a_plan_is_shown_as_it_was_said(text, told):
    """In a worker's banner, and entry by entry in its row."""
    assert told == str(plan(text))


@pytest.mark.parametrize(
    "text, problem",
    [
        ("a,,b", "'' is no entry"),
        ("a b", "'a b' is no entry"),
        (".a", "'.a' is no entry"),
        (NAME + "x", "is no entry"),
        ("a*b", "'a*b' is no entry"),
        ("**", "is no entry"),
        ("a:4=3", "is no entry: write NAME, NAME=WEIGHT, NAME:CAP or NAME=WEIGHT:CAP"),
        ("a=", "is no entry"),
        ("a:-1", "is no entry"),
        ("a:\u0661", "is no entry"),
        ("a=0", "'a=0': a weight is a whole number from 1 to 1,000, not 0"),
        (f"a={WEIGHT_MAX + 1}", "a weight is a whole number from 1 to 1,000, not 1001"),
        ("a:0", "'a:0': a cap is a whole number from 1 to 10,000, not 0"),
        (f"a:{CAP_MAX + 1}", "a cap is a whole number from 1 to 10,000, not 10001"),
        ("*,-a=2", "'-a=2' leaves a queue out: it takes no weight and no cap"),
        ("*,-a:2", "'-a:2' leaves a queue out: it takes no weight and no cap"),
        ("a,-*", "'-*' leaves out every queue"),
        ("a,-a", "'a' is named twice, as 'a' and as '-a'"),
        ("a:1,a:2", "'a' is named twice, as 'a:1' and as 'a:2'"),
        ("a*,a*=2", "'a*' is named twice"),
    ],
)
def test_what_makes_no_plan_is_refused(text, problem):
    """With the entry, the limit and the form."""
    with pytest.raises(ValueError, match=re.escape(problem)):
        read_plan(tuple(text.split(",")))


@pytest.mark.parametrize(
    "text, order, problem",
    [
        ("a=2", "strict", "Weights have no meaning in strict order"),
        ("a=2", "priority", "Weights have no meaning in priority order"),
        ("a", "random", "'random' is no order: choose priority, weighted, strict."),
    ],
)
def test_an_order_that_the_entries_do_not_go_with_is_refused(text, order, problem):
    """And one that there is not."""
    with pytest.raises(ValueError, match=problem):
        plan(text, order)
