"""Settings of the worker: the package's own defaults, and no instrument."""

from __future__ import annotations

import json
import os

# What the measure hands down; see measure.py.
FAULTS = json.loads(os.environ["PGQUEUE_FAULTS"])

SECRET_KEY = "tests"
DEBUG = False
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    alias: {**database, "CONN_MAX_AGE": 600}
    for alias, database in FAULTS["databases"].items()
}
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django_pgqueue",
    "tests.faults.windows",
]
PGQUEUE = FAULTS["pgqueue"]
