"""What errors of the same kind have in common."""

from __future__ import annotations

import time

import pytest

from django_pgqueue.redaction.fingerprint import (
    MESSAGE_CHARACTERS_MAX,
    fingerprint,
    normalised,
    place,
)

TRACEBACK = """Traceback (most recent call last):
  File "/srv/venv/lib/python3.12/site-packages/django_pgqueue/tasks/perform.py", line 9
  File "{root}/shop/tasks.py", line {line}, in send
    requests.get(url)
  File "/srv/venv/lib/python3.12/site-packages/requests/api.py", line 73, in get
    raise ConnectionError
ConnectionError: no
"""


@pytest.mark.parametrize(
    "message, expected",
    [
        ("Order 4711 is gone", "Order <n> is gone"),
        ("order-4711, user42", "order-<n>, user<n>"),
        ("took 1.5 s, -3, 1,000 and 1e9", "took <n> s, -<n>, <n> and <n>e<n>"),
        ("at 2026-11-22 10:30:00.123", "at <n> <n>"),
        ("no host 10.0.0.1:5432", "no host <n>"),
        ("user 'anna' isn't known", "user <text> isn't known"),
        ('no key "a b" in `c`', "no key <text> in <text>"),
        ("GET https://shop.example/o/7?x=1 failed", "GET <url> failed"),
        ("mail to anna.b+x@mail.example bounced", "mail to <email> bounced"),
        ("0x7f3a at 0xDEADBEEF", "<hex> at <hex>"),
        ("commit 3f2c9ab41d0e", "commit <hex>"),
        ("facade deadbeef", "facade deadbeef"),
        ("id 6fa459ea-ee8a-3ca4-894e-db77e160355e!", "id <uuid>!"),
        ("no file /srv/data/7/x.csv here", "no file <path> here"),
        (r"no file C:\data\x.csv here", "no file <path> here"),
        ("either/or, and/or", "either/or, and/or"),
        ("two\n  lines\t!", "two lines !"),
        ("password=[redacted]", "password=[redacted]"),
        ("", ""),
    ],
)
def test_what_differs_is_left_out(message, expected):
    """Numbers, ids, quoted texts, paths, hashes."""
    assert expected == normalised(message)


def test_the_place_is_the_last_frame_of_the_project():
    """Wherever it is installed, and on whatever line."""
    places = {
        place(TRACEBACK.format(root=root, line=line))
        for root, line in (("/srv/app", 7), ("/home/anna/src", 12))
    }

    assert {"shop/tasks.py in send"} == places


def test_the_place_of_foreign_code_alone_is_its_last_frame():
    """Such as of an error before the task was called."""
    text = '  File "/x/site-packages/a/b.py", line 1, in f\n  File "<string>", line 2\n'

    assert "<string>" == place(text)
    assert "" == place("no traceback")


def test_equal_errors_of_other_jobs_have_one_fingerprint():
    """And another class, message or place is another one."""
    error = {
        "kind": "error",
        "type": "requests.ConnectionError",
        "message": "Order 1 is gone",
        "traceback": TRACEBACK.format(root="/srv", line=1),
    }
    same = {**error, "message": "Order 22 is gone"}
    others = [
        {**error, "type": "builtins.ValueError"},
        {**error, "message": "Order 1 is late"},
        {**error, "traceback": ""},
    ]

    digests = [fingerprint(each).digest for each in (error, same, *others)]

    assert digests[0] == digests[1]
    assert 4 == len(set(digests))
    assert {32} == set(map(len, digests))


@pytest.mark.parametrize("error", [{}, {"type": 7, "message": None, "traceback": []}])
def test_any_entry_has_a_fingerprint(error):
    """Whatever SQL has put there."""
    assert "" == fingerprint(error).message


@pytest.mark.parametrize(
    "piece", ["a", "'", '"', "/a", "1.", "a1", "a@", "://", "0x", "-", "\\", "a://"]
)
def test_hostile_messages_take_no_time(piece):
    """And what is kept has a limit."""
    started = time.process_time()

    kept = normalised(piece * 100_000)

    assert time.process_time() - started < 1
    assert len(kept) <= MESSAGE_CHARACTERS_MAX
