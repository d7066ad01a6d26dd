"""What is hidden from people who look at jobs, and what that costs."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_pgqueue import task
from django_pgqueue.conf import REDACT_DEFAULT, Settings
from django_pgqueue.redaction.names import PLACEHOLDER
from django_pgqueue.redaction.text import redact_text
from django_pgqueue.redaction.values import (
    REST,
    VALUES_MAX,
    redact,
)
from django_pgqueue.tasks.redact import redact_job

HIDDEN = PLACEHOLDER

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


def hide(value):
    return redact(value, REDACT_DEFAULT)


def hide_text(text):
    return redact_text(text, REDACT_DEFAULT)


@task(name="redact.login")
def login(user, password, *tokens, note=""):
    """Take a secret by position."""


@task(name="redact.with_context", takes_context=True)
def with_context(secret_context, user, api_key):
    """Take a context first, which is no argument of the job."""


# Values ------------------------------------------------------------------------------


def test_the_whole_value_under_a_matching_key_is_replaced():
    """At any depth, in lists and objects; what does not match stays."""
    value = {
        "user": {"name": "ada", "password": "x", "api_key": {"id": 1, "parts": [2]}},
        "items": [{"token": None}, {"count": 3}],
    }

    assert {
        "user": {"name": "ada", "password": HIDDEN, "api_key": HIDDEN},
        "items": [{"token": HIDDEN}, {"count": 3}],
    } == hide(value)


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "db_password_2",
        "apiKey",
        "X-Api-Key",
        "privateKey",
        "Authorization",
    ],
)
def test_a_key_matches_whatever_its_case_and_its_way_to_join_words(key):
    """snake_case in the pattern finds camelCase, HTTP's dashes, dots and spaces."""
    assert {key: HIDDEN} == hide({key: "x"})


@given(value=JSON)
def test_it_never_raises_and_does_not_change_what_it_is_given(value):
    """Whatever the value; and what nothing matches comes back equal."""
    before = json.dumps(value)

    hide(value)

    assert before == json.dumps(value)
    assert value == redact(value, ["no key has this in it"])


def test_beyond_a_number_of_values_the_rest_is_one_placeholder():
    """In a list and in an object; so a payload of any size is shown at once."""
    assert [0] * VALUES_MAX + [HIDDEN] == hide([0] * (VALUES_MAX + 5))

    shown = hide({f"k{n}": n for n in range(VALUES_MAX + 5)})
    assert VALUES_MAX + 1 == len(shown)
    assert HIDDEN == shown[REST]


# Arguments of a job ------------------------------------------------------------------


def test_positional_arguments_have_the_names_of_the_parameters():
    """*tokens is one name for all that exceeds the others."""
    args, kwargs = redact_job(
        ["ada", "x", "t1", "t2"], {"note": "n"}, "redact.login", Settings()
    )

    assert ["ada", HIDDEN, HIDDEN, HIDDEN] == args
    assert {"note": "n"} == kwargs


@pytest.mark.parametrize("args", [None, "x", 5, {"password": "x"}])
def test_rows_that_sql_wrote_are_shown_too(args):
    """Where args is no list, or kwargs no object."""
    shown, _ = redact_job(args, [args], "redact.login", Settings())

    assert hide(args) == shown


# Text --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text,shown",
    [
        ("password=hunter2", "password=[redacted]"),
        (
            "login(user='a', password='b', n=1)",
            "login(user='a', password=[redacted], n=1)",
        ),
        (r"password='it\'s', n=1", "password=[redacted], n=1"),
        ('{"token": "abc", "n": 1}', '{"token": [redacted], "n": 1}'),
        (
            r'"{\"token\": \"a\\\"b\", \"n\": 1}"',
            r'"{\"token\": [redacted], \"n\": 1}"',
        ),
        ("{'secret': b'ab cd'}", "{'secret': [redacted]}"),
        ("token = '''ab'cd''' + x", "token = [redacted] + x"),
        (
            "'credential': {'a': '}', 'b': 'y'}, 'z': 1",
            "'credential': [redacted], 'z': 1",
        ),
        ("https://h/p?token=abc&n=1", "https://h/p?token=[redacted]&n=1"),
        (
            "Authorization: Bearer abc.def\nHost: h",
            "Authorization: [redacted]\nHost: h",
        ),
        ("authorization=Bearer abc, n=1", "authorization=[redacted], n=1"),
        ("Cookie: a=b; c=d\nHost: h", "Cookie: [redacted]\nHost: h"),
        ("postgres://ada:pw@db/shop", "postgres://ada:[redacted]@db/shop"),
        ("secret='never closed\nnext", "secret=[redacted]\nnext"),
    ],
)
def test_values_in_messages_and_tracebacks_are_replaced(text, shown):
    """However they are written: as code, JSON, repr, URL or HTTP header."""
    assert shown == hide_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'token'",
        "jwt.exceptions.InvalidTokenError: Signature has expired",
        "if token == other:",
        "TypeError: missing 1 required positional argument: 'password'",
        "https://h/p?page=2",
    ],
)
def test_text_that_only_names_a_secret_is_shown(text):
    """What went wrong stays readable."""
    assert text == hide_text(text)


def test_errors_are_shown_without_secrets():
    """Messages, tracebacks and keys; entries of any shape."""
    errors = [
        {"message": "password=x", "traceback": "f(token='y')\n", "attempt": 1},
        "no entry of ours",
    ]

    assert [
        {"message": "password=[redacted]", "traceback": "f(token=[redacted])\n"}
        | {"attempt": 1},
        "no entry of ours",
    ] == redact(errors, REDACT_DEFAULT)
    assert {"token": HIDDEN} == redact({"token": 1}, REDACT_DEFAULT)
