"""JSON laid out as text: everything stays, whatever it is."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_pgqueue.admin.payload import laid_out

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_layout_changes_nothing_but_space(value):
    """What is laid out reads as the same JSON."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)

    assert value == json.loads(laid_out(text))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "]" * 100_000,
        '{"' + "a" * 100_000,
        '"' + "\\" * 100_001,
        '["\\"' * 30_000,
        "{" + '"a": 1, ' * 12_000,
        "1" + "0" * 100_000,
        "no json at all, " * 5_000,
    ],
    ids=lambda text: text[:8],
)
def test_any_text_is_laid_out_at_once(text):
    """Cut off, unbalanced or no JSON: nothing is lost and it takes no time."""
    began = time.process_time()

    laid = laid_out(text)

    assert "".join(text.split()) == "".join(laid.split())
    assert time.process_time() - began < 2
