"""A failed attempt is reported as a failed request is."""

from __future__ import annotations

import json
from email import message_from_string, policy

import django
import pytest

from tests.app import report_tasks
from tests.harness.worker_process import wait_until_final

pytestmark = [
    pytest.mark.slow,
    pytest.mark.smoke,
    pytest.mark.django_db(transaction=True),
]

MODULES = {"TASK_MODULES": ["tasks", "report_tasks"]}
ADMIN = "root@example.com"
SECRETS = ("hunter2", "4111-1111")


def mailing(backend, **settings):
    """Return settings by which errors are mailed to one person."""
    return {
        "ADMINS": [ADMIN] if django.VERSION >= (6, 0) else [["Root", ADMIN]],
        "EMAIL_BACKEND": backend,
        "LOGGING": {
            "version": 1,
            "disable_existing_loggers": False,
            "handlers": {
                "console": {"class": "logging.StreamHandler"},
                "mail_admins": {
                    "class": "django.utils.log.AdminEmailHandler",
                    "level": "ERROR",
                    "include_html": True,
                },
            },
            "loggers": {
                "django_pgqueue": {
                    "handlers": ["console", "mail_admins"],
                    "level": "INFO",
                }
            },
        },
        **settings,
    }


def test_one_mail_tells_of_a_dead_job(start_worker, tmp_path):
    """With its traceback, and without arguments and what REDACT hides."""
    settings = mailing(
        "django.core.mail.backends.filebased.EmailBackend",
        EMAIL_FILE_PATH=str(tmp_path / "mails"),
    )
    job = report_tasks.charges.delay(SECRETS[1], password=SECRETS[0])
    worker = start_worker(pgqueue=MODULES, settings=settings)
    wait_until_final([job.id])
    assert 0 == worker.stop()

    (path,) = (tmp_path / "mails").iterdir()
    mail = message_from_string(path.read_text(), policy=policy.default)
    assert "ERROR: dead" in mail["Subject"].replace("\n", "")
    text, html = (part.get_content() for part in mail.iter_parts())
    for said in (text, html):
        assert "in charges" in said or "charges" in said
        assert "Unlucky" in said
        assert not [secret for secret in SECRETS if secret in said]
    assert not [secret for secret in SECRETS if worker.lines(secret)]


def test_sentry_has_one_event_of_a_dead_job(start_worker, tmp_path):
    """With the exception and what it came from, by task, queue and job."""
    events = tmp_path / "events"
    job = report_tasks.charges.using(queue="cards").delay(
        SECRETS[1], password=SECRETS[0]
    )
    worker = start_worker(
        pgqueue=MODULES,
        environment={report_tasks.EVENTS: str(events)},
    )
    wait_until_final([job.id])
    assert 0 == worker.stop()

    (line,) = events.read_text().splitlines()
    event = json.loads(line)
    *came_from, raised = event["exception"]["values"]
    assert ("tests.app.tasks", "Unlucky") == (raised["module"], raised["type"])
    assert ["KeyError"] == [each["type"] for each in came_from]
    assert "charges" == raised["stacktrace"]["frames"][-1]["function"]
    assert "error" == event["level"]
    assert {
        "task": report_tasks.charges.name,
        "queue": "cards",
        "job_id": str(job.id),
    } == event["tags"]
    assert not [secret for secret in SECRETS if secret in line]
