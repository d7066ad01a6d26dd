"""Pipeline runs: their state, and what people do with them."""

from __future__ import annotations

from datetime import timedelta
from html import unescape

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages

from django_pgqueue.models import Job, PipelineRun
from django_pgqueue.spark import job as jobs
from django_pgqueue.spark.job import pipeline_job
from tests.harness.factories import make_job, make_live_run, make_run

pytestmark = pytest.mark.django_db

URL = "/admin/pgqueue/pipelinerun/"
QUEUE = "pgqueue_pipeline"


def texts(response):
    return [str(message) for message in get_messages(response.wsgi_request)]


def html_of(client, path=""):
    response = client.get(URL + path)
    assert 200 == response.status_code
    return unescape(response.content.decode())


@pytest.fixture
def costs(monkeypatch):
    """A pipeline job of the project's own, with an option of each type."""
    monkeypatch.setattr(jobs, "_jobs", dict(jobs._jobs))

    @pipeline_job(name="costs")
    def costs(
        run, *, folder="/srv", days=7, least=0.5, full=False, label=None, token=""
    ):
        """What the tasks have cost."""

    return costs


def test_the_list_tells_how_runs_are_and_went(admin_client):
    """State, progress, rows, rate, time and who asked; the latest first."""
    make_run(rows_in=1_234_567, started_at=-timedelta(minutes=5))
    make_run(job="failures", state="failed", error="SparkError: no disk", rows_out=0)
    make_live_run(asked_by="job 4711")

    html = html_of(admin_client)

    rows = html.split("<tr>")[-3:]
    assert '<progress value="3" max="12">' in rows[0]
    assert "reading, 3 of 12 tasks" in rows[0]
    assert "1,500 rows/s" in rows[0]
    assert "job 4711" in rows[0]
    assert "pgqueue-failed" in rows[1]
    assert "pgqueue-succeeded" in rows[2]
    assert "1,234,567" in rows[2]
    assert "4 min" in rows[2]


def test_the_page_of_a_run_has_all_that_is_known(admin_client):
    """Spark's UI and the queue's job as links, while it is live."""
    run = make_live_run(queue_job_id=4711, cancel_requested_by=None)

    html = html_of(admin_client, f"{run.pk}/change/")

    assert '<a href="http://web-1:4040" rel="noreferrer">' in html
    assert 'href="/admin/pgqueue/job/4711/change/">4711</a>' in html
    assert '"lookback": "2d"' in html
    assert 'id="pgqueue-live" data-seconds="5"' in html
    assert "pgqueue/live.js" in html
    assert "Stop" in html
    assert "Run again" not in html


def test_errors_and_options_need_view_payload(admin_client, staff):
    """They may quote what was read; secrets are shown to nobody."""
    run = make_run(
        state="failed",
        error="SparkError: bad row\n  password=hunter2",
        options={"folder": "/srv/private", "api_token": "hunter2"},
    )
    path = f"{run.pk}/change/"

    html = html_of(admin_client, path)
    other = html_of(staff("view_pipelinerun"), path)

    assert "SparkError: bad row\n  password=[redacted]" in html
    assert "/srv/private" in html
    assert "hunter2" not in html
    assert "bad row" not in other
    assert "/srv/private" not in other
    assert "needs permission pgqueue.view_payload" in other


def test_run_again_enqueues_the_same_options(admin_client):
    """In a job of the queue, which the message and the history name."""
    run = make_run(options={"lookback": "9d", "full": True, "keep": "400d"})
    path = f"{URL}{run.pk}/run-again/"

    assert "Run again" in html_of(admin_client, f"{run.pk}/change/")
    assert not Job.objects.exists()
    response = admin_client.post(path, {"confirmed": "1"})

    job = Job.objects.get()
    assert (QUEUE, "django_pgqueue.run_pipeline") == (job.queue, job.task)
    assert ["metrics"] == job.args
    assert {"lookback": "9d", "full": True, "keep": "400d"} == job.kwargs
    assert [f"1 started, by job {job.pk}."] == texts(response)
    entry = LogEntry.objects.get()
    assert (str(run.pk), f"Run again, by job {job.pk}.") == (
        entry.object_id,
        entry.change_message,
    )


def test_stop_asks_the_live_run(admin_client):
    """After a question; who asked is noted, and the first stays."""
    run = make_live_run()
    path = f"{URL}{run.pk}/stop/"

    assert "writes no more results" in admin_client.get(path).content.decode()
    assert PipelineRun.objects.get().cancel_requested_at is None
    response = admin_client.post(path, {"confirmed": "1"})
    again = admin_client.post(path, {"confirmed": "1"})

    row = PipelineRun.objects.get()
    assert "admin" == row.cancel_requested_by
    assert ["1 asked to stop, within seconds."] == texts(response)
    assert "1 left: ended, or asked already." in texts(again)
    assert ["Asked to stop."] == [e.change_message for e in LogEntry.objects.all()]
    assert "running, asked to stop" in html_of(admin_client)


def test_a_new_run_is_chosen_and_filled_in(admin_client, costs):
    """Each option with its default; only what differs is sent along."""
    choice = html_of(admin_client, "run/")
    form = html_of(admin_client, "run/?job=costs")

    for name in ("costs", "failures", "metrics"):
        assert f'href="?job={name}"' in choice
    assert "What the tasks have cost." in choice
    assert 'name="option-days" value="7"' in form
    assert "A whole number. Default: 7" in form
    assert "Text. Default: \u2013" in form
    response = admin_client.post(
        f"{URL}run/?job=costs",
        {
            "option-folder": "/srv",
            "option-days": "30",
            "option-least": "0.5",
            "option-full": "on",
            "option-label": "",
            "option-token": "",
        },
    )

    job = Job.objects.get()
    assert (["costs"], {"days": 30, "full": True}) == (job.args, job.kwargs)
    assert URL == response.url
    assert f"A run of costs was asked for: job {job.pk}." in texts(response)[0]
    entry = LogEntry.objects.get()
    assert (str(job.pk), "Asked for a run of costs.") == (
        entry.object_id,
        entry.change_message,
    )


# What the form of the export sends along.
GIVEN = {"option-since": ""}
EXPORTER = ("view_pipelinerun", "run_pipeline", "view_archivedjob", "view_payload")


@pytest.mark.parametrize("missing", EXPORTER[1:])
def test_rows_are_taken_out_by_those_who_may_view_them(staff, settings, missing):
    """Of the export, all columns of the archive; the act itself asks again."""
    settings.PGQUEUE = {"EXPORT": {"path": "/srv/export"}}
    run = make_run(job="export", options={"again": True})
    some = staff(*(name for name in EXPORTER if name != missing))

    assert 403 == some.get(f"{URL}run/?job=export").status_code
    assert 403 == some.post(f"{URL}run/?job=export", GIVEN).status_code
    response = some.post(f"{URL}{run.pk}/run-again/", {"confirmed": "1"})
    if missing == "run_pipeline":
        assert 403 == response.status_code
    else:
        assert "takes out rows that you may not view" in texts(response)[0]
        choice = html_of(some, "run/")
        assert 'href="?job=metrics"' in choice
        assert 'href="?job=export"' not in choice
    assert not Job.objects.exists()

    every = staff(*EXPORTER)
    assert 'href="?job=export"' in html_of(every, "run/")
    assert 302 == every.post(f"{URL}run/?job=export", GIVEN).status_code
    every.post(f"{URL}{run.pk}/run-again/", {"confirmed": "1"})
    assert [{}, {"again": True}] == [job.kwargs for job in Job.objects.order_by("pk")]


def test_runs_write_only_where_settings_allow(admin_client, settings):
    """The form refuses other addresses, and so does a run that is repeated."""
    settings.PGQUEUE = {
        "EXPORT": {"path": "/srv/export"},
        "SPARK": {"destinations": ["s3a://bucket/log"]},
    }
    url = f"{URL}run/?job=export"
    refusal = "may not write to '/home/eve' when the queue runs it"
    run = make_run(job="export", options={"path": "/home/eve"})

    form = admin_client.post(url, {**GIVEN, "option-path": "/home/eve"}).context["form"]
    again = admin_client.post(f"{URL}{run.pk}/run-again/", {"confirmed": "1"})

    assert refusal in form.non_field_errors()[0]
    assert refusal in texts(again)[0]
    assert not Job.objects.exists()
    admin_client.post(url, {**GIVEN, "option-path": "s3a://bucket/log/jobs"})
    assert {"path": "s3a://bucket/log/jobs"} == Job.objects.get().kwargs


def test_jobs_that_run_the_pipeline_are_edited_by_those_who_may_run_it(staff):
    """Else whoever edits arguments could have everything exported."""
    row = make_job(queue=QUEUE, task="django_pgqueue.run_pipeline", args=["metrics"])
    url = f"/admin/pgqueue/job/{row.pk}/edit/"
    edit = ("view_job", "edit", "view_payload")
    given = {"args": '["export"]', "kwargs": "{}", "_save": ""}

    some = staff(*edit, "run_pipeline")
    given["seen"] = some.get(url).context["form"].initial.get("seen", "")

    assert 403 == some.post(url, given).status_code
    row.refresh_from_db()
    assert ["metrics"] == row.args
    every = staff(*edit, *EXPORTER)
    given["seen"] = every.get(url).context["form"].initial.get("seen", "")
    assert 302 == every.post(url, given).status_code
    row.refresh_from_db()
    assert ["export"] == row.args
