"""How a pipeline job is declared, found, and told its options."""

from __future__ import annotations

import pytest

from django_pgqueue.exceptions import DeclarationError, SparkOptionError
from django_pgqueue.spark import job as jobs
from django_pgqueue.spark.job import declared_jobs, find_job, pipeline_job
from django_pgqueue.spark.option_table import duration


@pytest.fixture(autouse=True)
def _own_jobs(monkeypatch):
    monkeypatch.setattr(jobs, "_jobs", dict(jobs._jobs))


def test_a_declared_job_is_found_with_its_options():
    """By the function's name; the function stays what it is."""

    @pipeline_job()
    def late(run, *, days=7, share=0.5, name="x", dry=False, path=None):
        """Say what is late.

        More."""
        return run

    job = find_job("late")

    assert 1 == late(1)
    assert job in declared_jobs()
    assert "Say what is late." == job.summary
    given = {"days": "3", "share": "1", "dry": "Yes", "path": "/y"}
    assert {"days": 3, "share": 1.0, "name": "x", "dry": True, "path": "/y"} == (
        job.read_options(given)
    )


@pytest.mark.parametrize(
    "options, problem",
    [
        ({"dasy": "1"}, "no option 'dasy'; it has: days, dry. Did you mean 'days'"),
        ({"days": "1.5"}, "days of late must be a whole number.*not '1.5'"),
        ({"days": True}, "days of late must be a whole number.*not 'True'"),
        ({"dry": "maybe"}, "dry of late must be true or false"),
        (
            {"days": "1" * 10_001},
            "days of late has 10,001 characters; the limit is 10,000",
        ),
    ],
)
def test_wrong_options_are_refused(options, problem):
    """With the thing, the value and what would be right."""

    @pipeline_job()
    def late(run, *, days=7, dry=False): ...

    with pytest.raises(SparkOptionError, match=problem):
        find_job("late").read_options(options)


def test_functions_that_cannot_be_jobs_are_refused():
    """When they are declared; so is a word about them that names nothing."""

    def no_run(archive): ...
    def frames(run, archive): ...
    def no_default(run, *, days): ...
    def catches_all(run, **rest): ...
    async def waits(run): ...
    def late(run, *, folder="/x"): ...
    def metrics(run): ...

    for function, said, problem in (
        (no_run, {}, "first parameter of the pipeline job no_run must be run"),
        (frames, {}, r"frames takes archive: .* keyword-only"),
        (no_default, {}, "option days .* needs a default"),
        (catches_all, {}, r"takes \*\*rest"),
        (waits, {}, "must be a plain function: neither async nor a generator"),
        (lambda run: None, {}, "cannot be called '<lambda>'"),
        (late, {"chooses": ("foldr",)}, "'foldr', which is no option. Did you mean"),
        (late, {"takes_out": ("archiv",)}, "'archiv', which is no table. Did you mean"),
        (metrics, {}, "cannot be called 'metrics'"),
    ):
        with pytest.raises(DeclarationError, match=problem):
            pipeline_job(**said)(function)
    with pytest.raises(SparkOptionError, match=r"'metrcs'\. Did you mean 'metrics'"):
        find_job("metrcs")


def test_durations():
    """A number and a unit."""
    assert 90 == duration("keep", "90s").total_seconds()
    assert 7 == duration("keep", " 7d ").days
    for text in ("", "7", "d", "-1d", "3654d", "1y"):
        with pytest.raises(SparkOptionError, match="The option keep is"):
            duration("keep", text)
