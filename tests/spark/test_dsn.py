"""Where a DSN is read, and that no error shows it."""

from __future__ import annotations

import pytest

from django_pgqueue.exceptions import SparkError
from django_pgqueue.spark.dsn import FILE_BYTES_MAX, DsnSource, without_secrets

URL = "postgresql://anna:s3cret@db.example/shop"


def test_a_file_wins_over_the_environment(tmp_path):
    """As a secret is mounted; a line end is no part of it."""
    file = tmp_path / "dsn"
    file.write_text(f"{URL}\n")

    assert DsnSource(file=str(file)).read({"PGQUEUE_DSN": "host=other"}) == URL


@pytest.mark.parametrize("environ", [{}, {"PGQUEUE_DSN": "  "}])
def test_an_unset_variable_is_named(environ):
    """With what to set, and when."""
    with pytest.raises(SparkError, match=r"\$PGQUEUE_DSN is empty or not set"):
        DsnSource().read(environ)


def test_what_is_no_dsn_is_not_repeated():
    """It may be a password that somebody has put in the wrong place."""
    with pytest.raises(SparkError, match="holds no DSN") as refused:
        DsnSource().read({"PGQUEUE_DSN": "s3cret"})

    assert "s3cret" not in str(refused.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    """So is one that is too large to be a DSN."""
    with pytest.raises(SparkError, match="nowhere, which the option dsnFile names"):
        DsnSource(file=str(tmp_path / "nowhere")).read({})
    large = tmp_path / "large"
    large.write_text("x" * (FILE_BYTES_MAX + 1))
    with pytest.raises(SparkError, match="more than 10,000 bytes"):
        DsnSource(file=str(large)).read({})


@pytest.mark.parametrize(
    "dsn, text",
    [
        (URL, "password s3cret is wrong"),
        ("postgresql://anna:s3%63ret@h/d", "token s3%63ret, or s3cret"),
        ("host=h password=s3cret", "no s3cret"),
        ("host=h password='s3cret'", "no s3cret"),
        ("postgresql://anna@h/d?password=s3cret&x=y", "no s3cret"),
        ("nonsense s3cret", 'missing "=" after "s3cret" in connection info string'),
    ],
)
def test_an_error_of_the_driver_loses_the_password(dsn, text):
    """Whichever way the DSN is written."""
    assert "s3cret" not in without_secrets(text, dsn)
