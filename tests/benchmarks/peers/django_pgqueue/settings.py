"""Settings of a project that has this queue and nothing else."""

from __future__ import annotations

import os

from tests.benchmarks.agent.django_database import DATABASE

SECRET_KEY = "benchmarks"
DEBUG = False
USE_TZ = True
DATABASES = {"default": DATABASE}
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    *os.environ.get(
        "BENCHMARK_APPS",
        "django_pgqueue tests.benchmarks.peers.django_pgqueue "
        "tests.benchmarks.measures",
    ).split(),
]
