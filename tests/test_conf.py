"""Settings: every key with its limits, and an error that names the way out."""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import timedelta

import pytest

from django_pgqueue.conf import (
    LIMITS,
    DepthLimit,
    Export,
    QueueLimit,
    Retention,
    Settings,
    get_settings,
    parse,
    problems,
    readable_settings,
)
from django_pgqueue.exceptions import SettingsError
from django_pgqueue.options.durations import DURATION_MAX, as_timedelta

DAY = 86_400
TEN_YEARS = DURATION_MAX.total_seconds()

# Key, smallest and largest value, as settings.md has them; both are accepted.
NUMBERS = [(name.upper(), low, high) for name, (low, high) in LIMITS.items()]


def value_of(key, raw):
    return getattr(parse({key: raw}), key.lower())


# Defaults ----------------------------------------------------------------------------


def test_without_settings_the_defaults_hold():
    """They are those of the reference page."""
    assert parse({}) == Settings(
        database="default",
        listen=True,
        listen_database=None,
        poll_interval_seconds=5.0,
        lease_seconds=60.0,
        grace_seconds=30.0,
        payload_bytes_max=1_048_576,
        result_bytes_max=65_536,
        result_ttl_seconds=86_400.0,
        retention=Retention(archive=timedelta(days=7), dead_letters=timedelta(days=90)),
        queues={},
        defaults={},
        unknown_task_grace_seconds=3_600.0,
        deliveries_max=100,
        crashes_max=3,
        task_modules=("tasks",),
    )


# Numbers -----------------------------------------------------------------------------


def test_every_number_has_limits():
    """By its name."""
    assert set(LIMITS) == {
        item.name
        for item in fields(Settings)
        if item.name.endswith(("_seconds", "_max", "_bytes", "_jobs"))
    }


@pytest.mark.parametrize("key,low,high", NUMBERS)
def test_the_limits_themselves_are_accepted(key, low, high):
    """The smallest and the largest value."""
    assert low == value_of(key, low)
    assert high == value_of(key, high)


@pytest.mark.parametrize("key,low,high", NUMBERS)
def test_a_number_beyond_its_limits_is_refused(key, low, high):
    """The error names the key and the value."""
    step = 0.01 if key.endswith("_SECONDS") else 1
    for value in (low - step, high + step):
        with pytest.raises(SettingsError, match=re.escape(f"PGQUEUE['{key}'] is ")):
            parse({key: value})


# Other keys --------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, True, ["default"], b"default"])
@pytest.mark.parametrize("key", ["DATABASE", "LISTEN_DATABASE"])
def test_a_database_is_the_name_of_an_alias(key, value):
    """LISTEN_DATABASE may be None, which means the same as DATABASE."""
    assert "queue" == value_of(key, "queue")
    assert value_of("LISTEN_DATABASE", None) is None
    with pytest.raises(
        SettingsError, match=rf"PGQUEUE\['{key}'\] must be the name of a database"
    ):
        parse({key: value})


@pytest.mark.parametrize(
    "raw,expected",
    [
        ({"archive": "1d"}, Retention(archive=timedelta(days=1))),
        (
            {"archive": None, "dead_letters": 60},
            Retention(archive=None, dead_letters=timedelta(minutes=1)),
        ),
    ],
)
def test_retention_is_by_table(raw, expected):
    """What is not given keeps its default; None keeps rows for ever."""
    assert expected == value_of("RETENTION", raw)


@pytest.mark.parametrize(
    "raw,message",
    [
        ({"QUEUES": ["mail"]}, r"PGQUEUE\['QUEUES'\] must be a dict by queue name"),
        ({"QUEUES": {"mail": 5}}, r"PGQUEUE\['QUEUES'\]\['mail'\] must be a dict"),
        (
            {"QUEUES": {"mail": {"prority": 5}}},
            r"unknown option .prority.; known are .*\. Did you mean .priority.\?",
        ),
        ({"DEFAULTS": {"queue": "x"}}, "unknown option 'queue'"),
        ({"DEFAULTS": 5}, r"PGQUEUE\['DEFAULTS'\] must be a dict of options, not 5"),
    ],
)
def test_options_that_cannot_be_read_are_refused(raw, message):
    """The error names where they stand."""
    with pytest.raises(SettingsError, match=message):
        parse(raw)


# Durations ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value,seconds",
    [
        (0, 0),
        (1.5, 1.5),
        (timedelta(minutes=2), 120),
        ("250ms", 0.25),
        ("5m", 300),
        ("7d", 7 * DAY),
        ("2w", 14 * DAY),
        ("1.5h", 5_400),
        (" 5 m ", 300),
    ],
)
def test_a_duration_is_seconds_a_timedelta_or_text(value, seconds):
    """Each unit from milliseconds to weeks."""
    assert timedelta(seconds=seconds) == as_timedelta(value, name="x")


@pytest.mark.parametrize(
    "value",
    [
        "5",
        "5 minutes",
        "-5m",
        "1h30m",
        None,
        True,
    ],
)
def test_text_that_is_no_duration_is_refused(value):
    """The error shows how to write one."""
    with pytest.raises(
        ValueError, match=re.escape(f"x is {value!r}, which is no duration: write")
    ):
        as_timedelta(value, name="x")


@pytest.mark.parametrize(
    "value",
    [
        TEN_YEARS + 1,
        "3654d",
        timedelta.max,
        float("nan"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_duration_beyond_ten_years_is_refused(value):
    """It is a typing error, and PostgreSQL could not add it to now."""
    with pytest.raises(ValueError, match=r"x is .*; the longest is 3653 d\."):
        as_timedelta(value, name="x")


# All problems at once ----------------------------------------------------------------


def test_problems_are_told_for_every_key():
    """In their order; none where all is right."""
    wrong = {"LEASE_SECONDS": -1, "GRACE_SECONDS": 5, "LISTEM": True, "MODE": "x"}

    assert ["LEASE_SECONDS", "LISTEM", "MODE"] == [
        re.findall(r"'([A-Z_]+)'", str(problem))[0] for problem in problems(wrong)
    ]
    assert [] == problems({"GRACE_SECONDS": 5})


def test_readable_settings_have_the_default_for_what_is_wrong(settings):
    """So that Django starts, and its checks can say what is wrong."""
    settings.PGQUEUE = {"LEASE_SECONDS": -1, "TASK_MODULES": ["jobs"], "LISTEM": 1}

    assert Settings(task_modules=("jobs",)) == readable_settings()
    with pytest.raises(SettingsError, match="LEASE_SECONDS"):
        get_settings()


def test_redact_is_a_list_of_regular_expressions():
    """A broken one is told with what is wrong with it."""
    assert ("pin", r"^x\d") == parse({"REDACT": ["pin", r"^x\d"]}).redact
    assert () == parse({"REDACT": []}).redact
    for wrong in ("pin", [5], [""], None):
        with pytest.raises(SettingsError, match="must be a list of patterns"):
            parse({"REDACT": wrong})
    with pytest.raises(SettingsError, match=r"'\(' ?, which is no regular expression"):
        parse({"REDACT": ["("]})


# Sizes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value,size",
    [
        (2_000_000, 2_000_000),
        ("512MB", 512_000_000),
        ("1.5gib", 1_610_612_736),
        (None, None),
    ],
)
def test_a_size_is_a_number_of_bytes_or_text(value, size):
    """Units of a thousand, or of 1,024; None is no limit."""
    assert size == value_of("RECYCLE_MEMORY_BYTES", value)


def test_an_export_is_read_with_its_path():
    """As rows of days have it; without one, retention waits for nothing."""
    assert parse({}).export is None
    assert parse({"EXPORT": None}).export is None
    assert Export("/srv/jobs") == parse({"EXPORT": {"path": "/srv/jobs//"}}).export


@pytest.mark.parametrize(
    "key, value, problem",
    [
        ("RETENTION", "7d", "PGQUEUE['RETENTION'] must be a dict, not '7d'"),
        ("RETENTION", {"archives": 1}, "'archives'. Did you mean 'archive'?"),
        ("RETENTION", {"archive": "soon"}, "['RETENTION']['archive'] is 'soon'"),
        ("SPARK", "local", "must be a dict"),
        ("SPARK", {"mastr": "yarn"}, "unknown key 'mastr'. Did you mean 'master'?"),
        ("SPARK", {"config": {"shuffle": 8}}, "Spark's own configuration"),
        ("EXPORT", "/srv", "must be a dict or None"),
        ("EXPORT", {}, "['path'] must be a path that begins with /"),
        ("EXPORT", {"path": "jobs"}, "a URI such as 's3a://bucket/jobs', not 'jobs'"),
        ("EXPORT", {"path": "/" + 900 * "x"}, "has 901 characters; the limit is 900"),
        ("EXPORT", {"path": "/a", "format": "csv"}, "unknown key 'format'"),
        ("EMAIL", "smtp", "must be a dict, not 'smtp'"),
        ("EMAIL", {"through": 7}, "must be an alias of MAILERS or the import path"),
        ("EMAIL", {"queue": "-mail"}, "has '-mail', which is no queue name"),
        ("TASK_MODULES", "tasks", "must be a list of module names, not 'tasks'"),
    ],
)
def test_a_wrong_value_is_refused(key, value, problem):
    """The error names where it is, and what would be right."""
    with pytest.raises(SettingsError, match=re.escape(problem)):
        parse({key: value})


# Rules that redrive dead letters -----------------------------------------------------


def test_rules_are_read_in_their_order():
    """With durations and a rate as elsewhere; of none, there is none."""
    assert () == parse({}).reprocess
    first, second = parse(
        {
            "REPROCESS": [
                {"error": "shop.Unreachable", "task": "shop.call", "rate": "20/m"},
                {"reason": "timeout", "after": "1h", "max_age": "2d"},
            ]
        }
    ).reprocess
    hour = timedelta(hours=1)
    assert ("shop.Unreachable", None, "shop.call") == (
        first.error,
        first.reason,
        first.task,
    )
    assert (hour / 6, 24 * hour, 3.0) == (first.after, first.max_age, first.spacing)
    assert (hour, 48 * hour, 1.0) == (second.after, second.max_age, second.spacing)


@pytest.mark.parametrize(
    "value, problem",
    [
        ({"reason": "timeout"}, "must be a list of dicts"),
        (["timeout"], "[0] must be a dict, not 'timeout'"),
        ([{"resaon": "timeout"}], "'resaon'. Did you mean 'reason'?"),
        ([{"task": "shop.call"}], "[0] says neither 'error' nor 'reason'"),
        ([{"reason": "late"}], "[0]['reason'] is 'late'; it must be 'rejected' or "),
        ([{"reason": ["timeout"]}], "is ['timeout']; it must be"),
        ([{"error": ""}], "[0]['error'] must be a name of 1 to 255 characters"),
        ([{"error": "a\x00"}], "must be a name"),
        ([{"error": KeyError}], "must be a name"),
        ([{"error": "E", "after": "soon"}], "[0]['after'] is 'soon', which is no"),
        ([{"error": "E", "max_age": -1}], "longer than zero"),
        ([{"error": "E", "after": "1d"}], "Raise 'max_age', or lower 'after'"),
        ([{"error": "E", "rate": "0/m"}], "[0]['rate']: "),
        ([{"error": "E"}] * 21, "has 21 rules; the limit is 20"),
    ],
)
def test_a_wrong_rule_is_refused(value, problem):
    """With its place in the list, and what to write."""
    with pytest.raises(SettingsError, match=re.escape(problem)):
        parse({"REPROCESS": value})


# Depth of a queue ---------------------------------------------------------------------


def test_a_queue_may_have_a_limit():
    """Beside the options of its jobs; by itself it refuses."""
    settings = parse(
        {
            "QUEUES": {
                "mail": {"depth_max": 100, "priority": 3},
                "sms": {"depth_max": 1, "on_full": "block", "block_seconds": "2m"},
                "push": {"priority": 1},
            }
        }
    )
    assert DepthLimit(100, "refuse") == settings.depth_limit("mail")
    assert DepthLimit(1, "block", 120.0) == settings.depth_limit("sms")
    assert [None, None] == [settings.depth_limit(name) for name in ("push", "other")]
    assert {"mail": 100, "sms": 1} == settings.depths_max
    assert 3 == settings.queues["mail"]["priority"]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"depth_max": 0}, r"\['depth_max'\] is 0; it must be from 1 to 1,000,000"),
        ({"depth_max": 1.5}, "must be a whole number, not 1.5"),
        (
            {"depth_max": 1, "on_full": "drop"},
            r"\['on_full'\] is 'drop'; it must be 'refuse' or 'block' or 'signal'",
        ),
        ({"on_full": "refuse"}, "has 'on_full', which needs 'depth_max' beside it"),
        (
            {"depth_max": 1, "block_seconds": 1},
            "has 'block_seconds', which needs 'on_full': 'block' beside it",
        ),
        (
            {"depth_max": 1, "on_full": "block", "block_seconds": 3_601},
            r"\['block_seconds'\] is 3601.0; it must be from 0 to 3,600",
        ),
        ({"depth_maxx": 1}, r"unknown option 'depth_maxx'.*Did you mean 'depth_max'\?"),
        (7, "must be a dict of options, not 7"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(options, message):
    """The error names the queue, the key and what it may be."""
    with pytest.raises(
        SettingsError, match=rf"PGQUEUE\['QUEUES'\]\['mail'\].*{message}"
    ):
        parse({"QUEUES": {"mail": options}})


# Limits of a queue's claims -----------------------------------------------------------


def test_a_queue_may_have_a_concurrency_and_a_rate():
    """Each by itself, beside its depth and the options of its jobs."""
    settings = parse(
        {
            "QUEUES": {
                "mail": {"concurrency": 20, "rate": "100/m", "burst": 5},
                "sms": {"concurrency": 1, "depth_max": 9, "priority": 3},
                "push": {"rate": "5/30s"},
                "bank": {"depth_max": 7},
            }
        }
    )
    assert {
        "mail": QueueLimit(20, 0.6, 5),
        "sms": QueueLimit(1),
        "push": QueueLimit(None, 6.0, 1),
    } == settings.queue_limits
    assert {"sms": 9, "bank": 7} == settings.depths_max
    assert 3 == settings.queues["sms"]["priority"]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"concurrency": 0}, r"\['concurrency'\] is 0; it must be from 1 to 100,000"),
        ({"concurrency": True}, "must be a whole number, not True"),
        ({"burst": 2}, "has 'burst', which needs 'rate' beside it"),
        ({"rate": "1/s", "burst": 0}, r"\['burst'\] is 0; it must be from 1 to"),
        ({"rate": "often"}, r"\['rate'\]: rate='often': it must be text 'N/period'"),
        ({"rate": "1/60d"}, "one each 5.184e.06 s; it must be from"),
    ],
)
def test_a_limit_of_claims_that_cannot_be_is_refused(options, message):
    """The error names the queue, the key and what it may be."""
    with pytest.raises(
        SettingsError, match=rf"PGQUEUE\['QUEUES'\]\['mail'\].*{message}"
    ):
        parse({"QUEUES": {"mail": options}})
