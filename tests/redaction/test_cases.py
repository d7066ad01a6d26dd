"""Known secrets, by a table: none of them is seen, and what is harmless stays."""

from __future__ import annotations

import json

import pytest

from django_pgqueue.redaction.json_text import redact_json
from django_pgqueue.redaction.names import PLACEHOLDER, REDACT_DEFAULT, Names
from django_pgqueue.redaction.text import redact_text
from django_pgqueue.redaction.values import redact
from tests.redaction.cases import CASES, HARMLESS

NAMES = Names(REDACT_DEFAULT)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_known_secret_is_hidden(case):
    """As a value, as JSON, and in a list of errors; by all in the same way."""
    for value in (case.value, {"deep": [case.value]}):
        shown = redact(value, REDACT_DEFAULT)

        assert case.secret not in json.dumps(shown)
        assert PLACEHOLDER in json.dumps(shown)
        assert shown == json.loads(redact_json(json.dumps(value), NAMES).text)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_known_secret_is_hidden_in_text(case):
    """In a message: as it is, as JSON, and as Python writes it."""
    said = [case.value] if isinstance(case.value, str) else []
    for text in (*said, json.dumps(case.value), repr(case.value)):
        for line in (text, f"ValueError: {text}"):
            assert case.secret not in redact_text(line, REDACT_DEFAULT), line


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_known_secret_is_hidden_wherever_its_text_is_cut(case):
    """A page shows the beginning of a long column: no more than the whole would."""
    text = json.dumps({"args": case.value, "rest": "x"})
    half = case.secret[: len(case.secret) // 2 + 1]
    begins = text.index(case.secret)

    for length in range(begins + len(half), len(text)):
        shown = redact_json(text[:length], NAMES).text
        # Before all of its shape is there, nothing tells what it is.
        if "shape" not in case.name or length >= begins + len(case.secret):
            assert half not in shown, length


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_name_hides_nothing(name):
    """A word that has a secret one in it."""
    value = {name: "shown", "list": [name, "shown"], "name": name, "value": "shown"}

    assert value == redact(value, REDACT_DEFAULT)
    assert f"{name}=shown" == redact_text(f"{name}=shown", REDACT_DEFAULT)
