"""How a pipeline job is declared, found, and told its options."""

from __future__ import annotations

import pytest

from django_pgqueue.exceptions import DeclarationError, SparkOptionError
from django_pgqueue.spark import job as jobs
from django_pgqueue.spark.durations import duration
from django_pgqueue.spark.job import declared_jobs, find_job, pipeline_job
from django_pgqueue.spark.places import Files, Jobs, Query, QueueTable

ARCHIVE = {"archive": QueueTable("archive")}
OUT = {"out": Files("json", "/tmp/x")}  # noqa: S108  # Never written.


@pytest.fixture(autouse=True)
def _own_jobs(monkeypatch):
    monkeypatch.setattr(jobs, "_jobs", dict(jobs._jobs))


def test_a_declared_job_is_found_with_its_options():
    """By the function's name; the function stays what it is."""

    @pipeline_job(sources=ARCHIVE, sinks=OUT)
    def late(run, archive, *, days=7, share=0.5, name="x", dry=False, path=None):
        """Say what is late.

        More."""
        return run, archive

    job = find_job("late")

    assert (1, 2) == late(1, 2)
    assert job in declared_jobs()
    assert job.takes_run
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

    @pipeline_job(sources=ARCHIVE, sinks=OUT)
    def late(archive, *, days=7, dry=False): ...

    with pytest.raises(SparkOptionError, match=problem):
        find_job("late").read_options(options)


def test_an_unknown_job_is_refused():
    """With the nearest one."""
    with pytest.raises(SparkOptionError, match=r"'metrcs'\. Did you mean 'metrics'"):
        find_job("metrcs")


def test_functions_that_cannot_be_jobs_are_refused():
    """When they are declared."""

    def other_source(jobs): ...
    def no_default(archive, *, days): ...
    def catches_all(archive, **rest): ...
    async def waits(archive): ...

    def yields(archive):
        yield archive

    def names_run(archive, *, run=1): ...
    def Big(archive): ...  # noqa: N802

    for function, sinks, problem in (
        (other_source, OUT, r"takes \['jobs'\], and its sources are \['archive'\]"),
        (no_default, OUT, "option days .* needs a default"),
        (catches_all, OUT, r"takes \*\*rest"),
        (waits, OUT, "waits must be a plain function.*neither async nor a generator"),
        (yields, OUT, "yields must be a plain function"),
        (names_run, OUT, "cannot be called run: that is the run itself"),
        (Big, OUT, "cannot be called 'Big'"),
        (lambda archive: archive, {}, "cannot be called '<lambda>'"),
    ):
        with pytest.raises(DeclarationError, match=problem):
            pipeline_job(sources=ARCHIVE, sinks=sinks)(function)
    with pytest.raises(DeclarationError, match="late has no sink"):
        pipeline_job(name="late", sources=ARCHIVE, sinks={})(lambda archive: archive)


def late(archive, *, folder="/x"): ...


@pytest.mark.parametrize(
    "places, problem",
    [
        ({"sinks": [OUT]}, "sinks of the pipeline job late must be a dict"),
        (
            {"sources": {"archive": "archive"}},
            r"source 'archive' .* is 'archive', which has no read\(\)",
        ),
        (
            {"sinks": {"out": QueueTable("jobs")}},
            r"sink 'out' .* is QueueTable.* has no write\(\)",
        ),
        (
            {"sinks": {"out": Files}},
            "sink 'out' of the pipeline job late is the class Files: make an object",
        ),
        (
            {"sinks": {"out": Files("json", "{foldr}/x")}},
            "'{foldr}/x', and 'foldr' is no option of it. Did you mean 'folder'",
        ),
        (
            {"sinks": {"out": Jobs("a.b", options={"queue": "{q}"})}},
            "'{q}', and 'q' is no option of it",
        ),
        ({"sinks": {"out": Files("json", "{}/x")}}, "a brace without the name"),
        ({"sinks": {"out": Files("json", "{x")}}, "'{x' is no template"),
    ],
)
def test_places_that_do_not_fit_are_refused(places, problem):
    """When the job is declared, with its name and theirs."""
    with pytest.raises(DeclarationError, match=problem):
        pipeline_job(**{"sources": ARCHIVE, "sinks": OUT, **places})(late)


@pytest.mark.parametrize(
    "make, problem",
    [
        (lambda: QueueTable("archiv"), "'archiv'. Did you mean 'archive'"),
        (lambda: QueueTable("jobs", ("id", "tsk")), "'tsk'. Did you mean 'task'"),
        (lambda: Query(" "), "query has 0 characters"),
        (lambda: Query("SELECT 1 AS a", partitions=2), "partitions needs divideBy"),
        (lambda: Jobs("a.b", options={"quue": "q"}), "'quue'. Did you mean 'queue'"),
        (lambda: Jobs(options={"task": "a.b"}), "write task=… instead of an option"),
        (lambda: Jobs("a.b", options={"Queue": "q"}), "'Queue' is written otherwise"),
        (lambda: Files("csv", "/x", mode="apend"), "'apend'. Did you mean 'append'"),
    ],
)
def test_places_that_cannot_be_are_refused(make, problem):
    """When they are made."""
    with pytest.raises(DeclarationError, match=problem):
        make()


def test_what_the_run_knows_may_stand_in_texts():
    """Such as the day on which it began."""
    places = {"out": Jobs("a.b", name="late {run.started_at:%Y-%m-%d} {folder}")}

    pipeline_job(sources=ARCHIVE, sinks=places)(late)


def test_two_functions_of_one_name_are_refused():
    """Declaring the same one again, as a reload does, is none of that."""

    def declare():
        @pipeline_job(name="late", sources=ARCHIVE, sinks=OUT)
        def late(archive): ...

    def declare_another():
        @pipeline_job(name="late", sources=ARCHIVE, sinks=OUT)
        def late(archive): ...

    declare()
    declare()

    with pytest.raises(DeclarationError, match="Two pipeline jobs are called 'late'"):
        declare_another()


def test_durations():
    """A number and a unit."""
    assert 90 == duration("keep", "90s").total_seconds()
    assert 7 == duration("keep", " 7d ").days
    for text in ("7", "d", "-1d", "1w", "36501d", "1.5h"):
        with pytest.raises(SparkOptionError, match="The option keep is"):
            duration("keep", text)


def test_the_packages_jobs_keep_their_names():
    """Also where nobody has asked for one yet, so that they are not loaded."""
    with pytest.raises(DeclarationError, match="cannot be called 'metrics'"):

        @pipeline_job(name="metrics", sources=ARCHIVE, sinks=OUT)
        def mine(archive): ...

    assert (
        "django_pgqueue.spark.jobs.metrics" == find_job("metrics").function.__module__
    )
