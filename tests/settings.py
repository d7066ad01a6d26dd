"""Settings of the test suite: real PostgreSQL, embedded unless DATABASE_URL is set."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import django
import environ

from django_pgqueue.testing.embedded import PARAMETERS, database_url
from tests.harness.servers import url_for_process

BASE_DIR = Path(__file__).resolve().parent.parent

# Each process of `pytest -n 2` has a server for itself: some tests kill sessions, and
# some count them.
_process = os.environ.get("PYTEST_XDIST_WORKER", "")
_url = url_for_process(os.environ, BASE_DIR)
if _url is None:
    os.environ.pop("DATABASE_URL", None)
else:
    os.environ["DATABASE_URL"] = _url
_servers = Path(os.environ.get("PGQUEUE_TEST_FOLDER", BASE_DIR / ".pgqueue-tests"))
_folder = _servers / _process if _process else BASE_DIR
_folder.mkdir(parents=True, exist_ok=True)
# Such a server is of the tests alone, and its data need not outlive the machine.
with patch.dict(PARAMETERS, fsync="off" if _process else PARAMETERS["fsync"]):
    _database = environ.Env.db_url_config(database_url(_folder))

# Two runs at once on one server need databases of their own.
_suffix = f"{os.environ.get('PGQUEUE_TEST_SUFFIX', '')}{_process}"

SECRET_KEY = "tests"
DEBUG = False
USE_TZ = True
TIME_ZONE = "UTC"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"

DATABASES = {
    "default": {**_database, "TEST": {"NAME": f"test_pgqueue{_suffix}"}},
    # A second database of the same server: queues apart from the application's data.
    "queue": {**_database, "TEST": {"NAME": f"test_pgqueue_second{_suffix}"}},
}
# `make pgbouncer`: all go through it, but who listens and who looks on.
if _pooler := os.environ.get("PGQUEUE_TEST_POOLER"):
    for _alias in list(DATABASES):
        _direct = DATABASES[_alias]
        DATABASES[f"{_alias}_direct"] = {**_direct, "TEST": {"MIRROR": _alias}}
        DATABASES[_alias] = {
            **_direct,
            "HOST": "127.0.0.1",
            "PORT": _pooler,
            "OPTIONS": {
                name: value
                for name, value in _direct.get("OPTIONS", {}).items()
                if name not in {"host", "port"}
            },
            "DISABLE_SERVER_SIDE_CURSORS": True,
        }
    PGQUEUE = {"LISTEN_DATABASE": "default_direct"}
DATABASE_ROUTERS = ["tests.routers.BothDatabases"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django_pgqueue",
    "tests.app",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
# In memory: a login alone takes ten statements otherwise, and who asks is not tested.
SESSION_ENGINE = "django.contrib.sessions.backends.cache"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

# Tasks in the words of django.tasks: ours, one with options, and one of Django's own.
TASKS = {
    "default": {
        "BACKEND": "django_pgqueue.backends.tasks.PgQueueBackend",
        "QUEUES": ["default", "standard"],
    },
    "mail": {
        "BACKEND": "django_pgqueue.backends.tasks.PgQueueBackend",
        "QUEUES": ["mail"],
        "OPTIONS": {"retries": 2, "tags": ["letters"]},
    },
    "immediate": {
        "BACKEND": "django.tasks.backends.immediate.ImmediateBackend"
        if django.VERSION >= (6, 0)
        else "django_tasks.backends.immediate.ImmediateBackend",
    },
}
