"""Where the queue may let a pipeline job write: what settings name, and below."""

from __future__ import annotations

import pytest

from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.pipelines import run_pipeline
from django_pgqueue.spark import job as jobs
from django_pgqueue.spark.job import check_destinations, find_job, pipeline_job
from django_pgqueue.tasks.raised import Reject

ALLOWED = ["/srv/export/", "s3a://bucket/log"]


def check(name, **options):
    job = find_job(name)
    check_destinations(job, job.read_options(options), ALLOWED)


@pytest.mark.parametrize(
    "path",
    [
        "/srv/export",
        "/srv//export/./jobs",
        "file:///srv/export/jobs",
        "FILE:/srv/export",
        "s3a://bucket/log/",
        "",
    ],
)
def test_what_settings_name_is_allowed_with_all_below(path):
    """In each of its spellings; no address at all is the settings' own."""
    check("export", path=path)
    check("ingest", path=path, checkpoint=path)


@pytest.mark.parametrize(
    "path",
    [
        "/srv/exported",
        "/srv/export/../../etc",
        "/srv/export/%2e%2e/%2E%2E/etc",
        "file://elsewhere/srv/export",
        "s3a://bucket/logs",
        "s3a://me@bucket/log",
        "https://example.com/srv/export",
    ],
)
def test_any_other_address_is_refused(path):
    """Also one that only looks like it, or climbs out of it."""
    with pytest.raises(SparkOptionError, match="may not write to"):
        check("export", path=path)
    with pytest.raises(SparkOptionError, match="destinations"):
        check("ingest", path="/srv/export", checkpoint=path)


def test_without_settings_no_address_is_allowed():
    """The error says which setting."""
    job = find_job("export")
    with pytest.raises(SparkOptionError, match=r"\['destinations'\] names: none"):
        check_destinations(job, job.read_options({"path": "/srv/export"}), [])


def test_a_job_of_the_queue_with_another_address_is_rejected(settings):
    """By the task itself, whoever has enqueued it, before a process is started."""
    settings.PGQUEUE = {"EXPORT": {"path": "/srv/export"}}
    with pytest.raises(Reject, match="may not write to '/home/eve'"):
        run_pipeline("export", path="/home/eve")


def test_folders_of_own_jobs_are_those_of_their_code(monkeypatch):
    """An option that is declared as one that chooses is held to its default, and to
    what settings name; another is free."""
    monkeypatch.setattr(jobs, "_jobs", dict(jobs._jobs))

    @pipeline_job(name="own", chooses=("folder", "refused"))
    def own(run, *, month="", folder="/data", refused=None): ...

    check("own", month="../../etc")
    check("own", folder="/srv/export/x", refused="/srv/export/y")
    check("own", folder="/data/x")
    for options in (
        {"folder": "/etc"},
        {"folder": "/data/../etc"},
        {"refused": "/etc"},
    ):
        with pytest.raises(SparkOptionError, match="may not write to"):
            check("own", **options)
