"""What is masked before a batch leaves the reader, and at what cost."""

from __future__ import annotations

import json
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_pgqueue.redaction.names import REDACT_DEFAULT
from django_pgqueue.redaction.values import redact_json
from django_pgqueue.spark.redact import Redaction, Redactor, _loosely
from tests.spark.conftest import require

pytestmark = pytest.mark.spark

KEYS = (
    st.sampled_from(["a", "token", "accessToken", "X-Api-Key", "api\tkey", "apiKey"])
    | st.sampled_from(["APIKEY", "pin", 'api"key', "private..key", "_token_"])
    | st.sampled_from(["pa\u017f\u017fword", "to\u212aen", "author\u0131zation"])
    | st.text(max_size=4)
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def arrow():
    require("pyarrow")
    import pyarrow

    # What it loads at the first look counts against no example's deadline.
    masked(pyarrow, "kwargs", ['{"token": "x"}'])
    return pyarrow


def masked(arrow, column, texts, *, redaction=None, tasks=None):
    redactor = Redactor(redaction or Redaction())
    given_tasks = None if tasks is None else arrow.array(tasks, arrow.string())
    values = arrow.array(texts, arrow.string())
    return redactor.masked(column, values, given_tasks).to_pylist()


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_it_hides_what_the_admin_hides(arrow, values):
    """The rows that are not gone through have nothing to hide."""
    texts = [json.dumps(value, ensure_ascii=False) for value in values]
    assert [redact_json(text, REDACT_DEFAULT) for text in texts] == masked(
        arrow, "kwargs", texts
    )


@pytest.mark.parametrize(
    "key",
    ["api_key", "apiKey", "X-Api-Key", "api key", "api.key", "api\tkey", "api - key"],
)
def test_a_key_is_found_however_it_is_written(arrow, key):
    """Every way that counts as api_key in the admin; no other pattern helps."""
    texts = [json.dumps({key: "x", "note": "kept"})]
    hidden = [json.dumps({key: "[redacted]", "note": "kept"})]

    assert hidden == masked(arrow, "kwargs", texts, redaction=Redaction(("api_key",)))


def test_every_letter_is_found_in_each_case_that_python_knows(arrow):
    """RE2 folds fewer letters than Python's re does."""
    import pyarrow.compute

    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    everything, text = arrow.array(characters), "".join(characters)
    for letter in string.ascii_lowercase + string.digits:
        by_python = re.compile(letter, re.IGNORECASE)
        found = pyarrow.compute.match_substring_regex(
            everything, _loosely(letter), ignore_case=True
        )

        missed = set(by_python.findall(text)) - set(
            everything.filter(found).to_pylist()
        )
        assert missed == set(), letter


def test_rows_without_a_secret_stay_as_they_are(arrow):
    """Not one of them becomes a Python value."""
    values = arrow.array(['{"a": 1e5000}', None, '{"b": [1.10]}'], arrow.string())

    assert Redactor(Redaction()).masked("kwargs", values, None) is values


def test_parameters_of_a_known_task_are_hidden_by_their_place(arrow):
    """The last place holds for all further ones; other tasks have none."""
    redaction = Redaction(places={"shop.login": (False, True)})

    assert ['["anna", "[redacted]", "[redacted]"]', '["anna", "b", "c"]', None] == (
        masked(
            arrow,
            "args",
            ['["anna", "b", "c"]', '["anna", "b", "c"]', None],
            redaction=redaction,
            tasks=["shop.login", "shop.other", "shop.login"],
        )
    )
