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


def test_an_unknown_job_is_refused():
    """With the nearest one."""
    with pytest.raises(SparkOptionError, match=r"'metrcs'\. Did you mean 'metrics'"):
        find_job("metrcs")


def test_functions_that_cannot_be_jobs_are_refused():
    """When they are declared."""

    def no_run(archive): ...
    def nothing(): ...
    def only_by_name(*, run=None): ...
    def frames(run, archive): ...
    def no_default(run, *, days): ...
    def catches_all(run, **rest): ...
    async def waits(run): ...

    def yields(run):
        yield run

    def Big(run): ...  # noqa: N802

    for function, problem in (
        (no_run, "first parameter of the pipeline job no_run must be run"),
        (nothing, "first parameter of the pipeline job nothing must be run"),
        (only_by_name, "first parameter of the pipeline job only_by_name must be run"),
        (frames, r"frames takes archive: .* keyword-only: def frames\(run, \*, …\)"),
        (no_default, "option days .* needs a default"),
        (catches_all, r"takes \*\*rest"),
        (waits, "waits must be a plain function: neither async nor a generator"),
        (yields, "yields must be a plain function"),
        (Big, "cannot be called 'Big'"),
        (lambda run: None, "cannot be called '<lambda>'"),
    ):
        with pytest.raises(DeclarationError, match=problem):
            pipeline_job()(function)


@pytest.mark.parametrize(
    "said, problem",
    [
        ({"chooses": "folder"}, "chooses .* late must be a tuple of names"),
        ({"chooses": ("foldr",)}, "'foldr', which is no option. Did you mean 'folder'"),
        ({"takes_out": ("archiv",)}, "'archiv', which is no table. Did you mean"),
        ({"takes_out": 7}, "takes_out of the pipeline job late must be a tuple"),
    ],
)
def test_what_a_job_says_of_itself_is_looked_up(said, problem):
    """Else a name with a slip of the pen would protect nothing."""
    with pytest.raises(DeclarationError, match=problem):

        @pipeline_job(**said)
        def late(run, *, folder="/x"): ...


def test_two_functions_of_one_name_are_refused():
    """Declaring the same one again, as a reload does, is none of that."""

    def declare():
        @pipeline_job(name="late")
        def late(run): ...

    def declare_another():
        @pipeline_job(name="late")
        def late(run): ...

    declare()
    declare()

    with pytest.raises(DeclarationError, match="Two pipeline jobs are called 'late'"):
        declare_another()


def test_durations():
    """A number and a unit."""
    assert 90 == duration("keep", "90s").total_seconds()
    assert 7 == duration("keep", " 7d ").days
    for text in ("", "7", "d", "-1d", "3654d", "1y"):
        with pytest.raises(SparkOptionError, match="The option keep is"):
            duration("keep", text)


def test_the_packages_jobs_keep_their_names():
    """Also where nobody has asked for one yet, so that they are not loaded."""
    with pytest.raises(DeclarationError, match="cannot be called 'metrics'"):

        @pipeline_job(name="metrics")
        def mine(run): ...

    assert (
        "django_pgqueue.spark.jobs.metrics" == find_job("metrics").function.__module__
    )
