"""Breaker: what a task may say of the share of attempts that fail."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue import Breaker, DeclarationError, task


def nothing():
    """Not declared here."""


def test_a_breaker_has_defaults():
    """Twenty attempts within a minute, and half a minute until the probe."""
    breaker = Breaker(0.5)

    assert (20, 60.0, timedelta(seconds=30)) == (
        breaker.of,
        breaker.within_seconds,
        breaker.cooldown_first,
    )


@pytest.mark.parametrize(
    "said, words",
    [
        ({"share": 0}, r"Breaker\(0\): the share of attempts that fail must be"),
        ({"share": 1.5}, "above 0, up to 1"),
        ({"share": "half"}, "must be a number"),
        ({"share": True}, "must be a number"),
        ({"share": float("nan")}, "must be a number"),
        ({"share": 1, "of": 0}, r"Breaker\(of=0\): it must be a whole number from 1"),
        ({"share": 1, "of": 2.5}, "a whole number"),
        ({"share": 1, "within": "2h"}, r"Breaker\(within='2h'\): it must be from 1 s"),
        ({"share": 1, "within": "soon"}, r"Breaker\(within\) is 'soon', which is no"),
        ({"share": 1, "cooldown": "10ms"}, "it must be from 1 s to 86,400 s"),
    ],
)
def test_what_is_out_of_range_is_refused(said, words):
    """By its name, with the limit."""
    with pytest.raises(DeclarationError, match=words):
        Breaker(**said)


def test_a_task_takes_a_breaker_and_nothing_else():
    """It says what one looks like."""
    with pytest.raises(DeclarationError, match=r"breaker=0\.5: it must be a Breaker"):
        task(breaker=0.5)(nothing)


@pytest.mark.parametrize("policy", ["first", "manual"])
def test_a_task_that_acks_before_its_end_takes_none(policy):
    """How the job was settled does not say how it ended."""
    with pytest.raises(DeclarationError, match="and breaker contradict each other"):
        task(breaker=Breaker(0.5), ack_policy=policy, takes_context=True)(nothing)
