"""Options are checked before anything is read, and none of them is a DSN."""

from __future__ import annotations

import pytest

from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.spark import options
from django_pgqueue.spark.tables import JOBS


def test_without_options_the_jobs_are_read_whole():
    """All columns, as fast as it goes, from $PGQUEUE_DSN."""
    asked = options.parse({})

    assert JOBS == asked.table
    assert (None, None, None) == (
        asked.columns,
        asked.partitions,
        asked.rows_per_second_max,
    )
    assert ("PGQUEUE_DSN", None) == (asked.dsn.variable, asked.dsn.file)


@pytest.mark.parametrize(
    "given, problem",
    [
        ({"tabel": "jobs"}, "Unknown option 'tabel'. Did you mean 'table'?"),
        ({"table": "archiv"}, "Did you mean 'archive'? The tables are jobs, "),
        ({"columns": "id,tsk"}, "no column 'tsk'. Did you mean 'task'?"),
        ({"columns": "id,id"}, "'id' is asked for twice"),
        ({"partitions": "0"}, "partitions is '0'; it must be a whole number from 1 to"),
        ({"dsnEnv": "A", "dsnFile": "/b"}, "not both"),
        ({"redact": "password"}, "a JSON list of regular expressions"),
        ({"redact": '["("]'}, "which is no regular expression"),
    ],
)
def test_a_wrong_option_is_refused_with_the_way_out(given, problem):
    """The error names the option, the value and what is known."""
    with pytest.raises(SparkOptionError) as refused:
        options.parse(given)

    assert problem in str(refused.value)


@pytest.mark.parametrize("name", ["url", "dsn", "password", "user", "dsnEnv"])
def test_a_dsn_is_refused_and_not_repeated(name):
    """The error says where it belongs; the text of it is nowhere."""
    dsn = "postgresql://anna:s3cret@db.example/shop"

    with pytest.raises(SparkOptionError, match="environment variable") as refused:
        options.parse({name: dsn})

    assert "s3cret" not in str(refused.value)
