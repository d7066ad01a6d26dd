"""pgqueue watch: a look at what is wrong, from any cron."""

from __future__ import annotations

import re

import pytest

from tests.harness.factories import make_dead_letter
from tests.management.test_pgqueue import DONE, NOTHING, run


@pytest.fixture(autouse=True)
def database(db):
    """The tables."""


def test_what_is_wrong_has_a_line_and_a_status():
    """What has changed first; then what stands since an earlier look."""
    assert (DONE, "Nothing is wrong that the watch looks for.\n", "") == run("watch")
    letter = make_dead_letter(task="shop.charge")

    status, out, err = run("watch")
    assert (NOTHING, "") == (status, err)
    heads, line = out.splitlines()
    assert ["kind", "subject", "change", "since", "detail"] == heads.split()
    assert re.fullmatch(
        r"new_dead_letters +shop\.charge +begins +now +1 jobs gave up within 00:15:00, "
        r"the last as exhausted",
        line,
    )
    make_dead_letter(task="other")
    status, out, err = run("watch")
    assert [["other", "begins"], ["shop.charge", "stands"]] == [
        line.split()[1:3] for line in out.splitlines()[1:]
    ]
    letter.delete()
    assert "ends" in run("watch")[1]


def test_a_cron_gets_mail_of_what_has_changed_alone():
    """The status is that of all that is wrong."""
    assert (DONE, "", "") == run("watch", "--quiet")
    make_dead_letter()
    assert run("watch", "--quiet")[1]
    assert (NOTHING, "", "") == run("watch", "--quiet")
