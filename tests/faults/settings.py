"""Settings of the processes of a run: workers, clients, and what makes the tables."""

from __future__ import annotations

import json
import os

# What the run hands down; see stage.py.
FAULTS = json.loads(os.environ["PGQUEUE_FAULTS"])

SECRET_KEY = "tests"
DEBUG = False
USE_TZ = True
TIME_ZONE = FAULTS.get("time_zone", "UTC")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# Connections are kept from job to job, and so is what a job leaves in them.
DATABASES = {
    alias: {**database, "CONN_MAX_AGE": 600}
    for alias, database in FAULTS["databases"].items()
}
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django_pgqueue",
    "tests.app",
    # Of a measure: an app of its own, without the instruments.
    FAULTS.get("app", "tests.faults.instrument.FaultsConfig"),
]
MODULES = ["tasks", "workload", "saga_tasks", *FAULTS.get("modules", ())]
PGQUEUE = {"TASK_MODULES": MODULES, **FAULTS["pgqueue"]}
