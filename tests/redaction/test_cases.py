"""Known secrets, by a table: none of them is seen, and what is harmless stays."""

from __future__ import annotations

import json

import pytest

from django_pgqueue.redaction.names import PLACEHOLDER, REDACT_DEFAULT
from django_pgqueue.redaction.text import redact_text
from django_pgqueue.redaction.values import redact, redact_json
from tests.redaction.cases import CASES, HARMLESS

# Ten of them are enough to see that each way is gone; all are seen with the slow tests.
EVERY = [
    pytest.param(case, marks=() if place % 9 == 0 else pytest.mark.slow, id=str(case))
    for place, case in enumerate(CASES)
]


@pytest.mark.parametrize("case", EVERY)
def test_a_known_secret_is_hidden(case):
    """As a value and as JSON, in the same way; and in a message, however written."""
    for value in (case.value, {"deep": [case.value]}):
        shown = redact(value, REDACT_DEFAULT)

        assert case.secret not in json.dumps(shown)
        assert PLACEHOLDER in json.dumps(shown)
        assert shown == json.loads(redact_json(json.dumps(value), REDACT_DEFAULT))
    said = [case.value] if isinstance(case.value, str) else []
    for text in (*said, json.dumps(case.value), repr(case.value)):
        for line in (text, f"ValueError: {text}"):
            assert case.secret not in redact_text(line, REDACT_DEFAULT), line


def test_text_without_secrets_stays_as_it_is_and_broken_text_is_hidden():
    """Numbers keep their digits; text that Python cannot parse is masked as a whole."""
    text = '{"b": 1.10,  "note" : {"x": [1e5000, "}"]}, "a": [0.10000000000000000001]}'
    beside = '{"b": 1.10, "token": "x", "a": [1e5000, null, "é"]}'
    hidden = f'"{PLACEHOLDER}"'

    assert text == redact_json(text, REDACT_DEFAULT)
    assert beside.replace('"x"', hidden) == redact_json(beside, REDACT_DEFAULT)
    assert "[1]" == redact_json("[1]", REDACT_DEFAULT, secret_places=(False, True))
    for broken in (beside[:-1], "NaN", "[" * 100_000, "{", '"a'):
        assert hidden == redact_json(broken, REDACT_DEFAULT)
        assert broken == redact_json(broken, ())


@pytest.mark.parametrize("name", HARMLESS[:5])
def test_a_harmless_name_hides_nothing(name):
    """A word that has a secret one in it."""
    value = {name: "shown", "list": [name, "shown"], "name": name, "value": "shown"}

    assert value == redact(value, REDACT_DEFAULT)
    assert f"{name}=shown" == redact_text(f"{name}=shown", REDACT_DEFAULT)
