"""Settings of a project that has django-tasks-db and nothing else."""

from __future__ import annotations

from tests.benchmarks.agent.django_database import DATABASE

SECRET_KEY = "benchmarks"
DEBUG = False
USE_TZ = True
DATABASES = {"default": DATABASE}
INSTALLED_APPS = ["django_tasks_db"]
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
