"""The view for Prometheus."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import RequestFactory, override_settings
from django.urls import path
from prometheus_client.parser import text_string_to_metric_families

from django_pgqueue import views
from django_pgqueue.prometheus import families, fleet
from django_pgqueue.prometheus.families import OTHERS, UNKNOWN
from tests.app import tasks
from tests.harness.factories import make_dead_letter, make_job

pytestmark = pytest.mark.django_db(transaction=True)

urlpatterns = [path("metrics", views.metrics)]


@pytest.fixture(autouse=True)
def nothing_read(monkeypatch):
    """Let each test read anew."""
    monkeypatch.setattr(fleet, "FLEET", fleet.Fleet())


def numbers(response_or_text):
    """Return every number by its name and labels."""
    text = getattr(response_or_text, "content", response_or_text).decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@override_settings(ROOT_URLCONF=__name__)
def test_the_view_tells_what_the_database_says(client):
    """Of each queue and state, to whoever gets there; it is never cached."""
    for _ in range(3):
        make_job(queue="mail")
    make_dead_letter(queue="mail", task=tasks.noop.name)

    response = client.get("/metrics")

    assert 200 == response.status_code
    assert response.headers["Content-Type"].startswith("text/plain; version=")
    assert "no-store" in response.headers["Cache-Control"]
    found = numbers(response)
    assert 1 == found["pgqueue_up",]
    assert 3 == found["pgqueue_jobs", ("queue", "mail"), ("state", "ready")]
    assert 1 == found["pgqueue_dead_letters", ("queue", "mail")]
    assert 405 == client.post("/metrics").status_code


def test_the_request_says_which_format():
    """OpenMetrics for those who ask for it, as Prometheus does."""
    asked = "application/openmetrics-text; version=1.0.0"
    response = views.metrics(RequestFactory().get("/", headers={"accept": asked}))

    assert response.headers["Content-Type"].startswith("application/openmetrics-text")
    assert response.content.endswith(b"# EOF\n")


def test_a_task_that_nobody_declared_has_no_label():
    """Whoever may insert rows makes up any number of names."""
    for number in range(3):
        make_dead_letter(task=f"made.up{number}")

    found = numbers(views.metrics(RequestFactory().get("/")))

    died = {key: value for key, value in found.items() if "last_day" in key[0]}
    assert {("task", UNKNOWN)} == {key[2] for key in died}
    assert 3 == sum(died.values())


def test_queues_beyond_a_bound_are_one(monkeypatch):
    """Those with the most to do are told apart, and no job is left out."""
    monkeypatch.setattr(families, "QUEUES_MAX", 2)
    for number in range(4):
        for _ in range(number + 1):
            make_job(queue=f"queue{number}")

    found = numbers(views.metrics(RequestFactory().get("/")))

    ready = {
        dict(labels)["queue"]: value
        for (name, *labels), value in found.items()
        if name == "pgqueue_jobs" and dict(labels)["state"] == "ready"
    }
    assert {"queue3": 4, OTHERS: 6} == ready


def test_the_database_is_asked_once_in_a_while(monkeypatch):
    """However often it is scraped; and again when that time is over."""
    looks = []
    read = fleet.Overview
    monkeypatch.setattr(
        fleet, "Overview", lambda cursor: looks.append(1) or read(cursor)
    )
    watched = fleet.Fleet()

    assert watched.look() is watched.look()
    assert 1 == len(looks)
    watched._latest.good_until = 0.0
    assert watched.look() is not None
    assert 2 == len(looks)


def test_a_database_that_fails_is_a_number(monkeypatch, caplog):
    """And no error of the view; nothing else is told then."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE pgqueue_worker RENAME TO pgqueue_worker_away")
    try:
        response = views.metrics(RequestFactory().get("/"))
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE pgqueue_worker_away RENAME TO pgqueue_worker")

    assert 200 == response.status_code
    assert {("pgqueue_up",): 0.0} == numbers(response)
    assert "the database was not read" in caplog.text
