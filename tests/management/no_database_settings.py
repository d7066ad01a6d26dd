"""Settings of a project that has configured no database."""

from __future__ import annotations

import os
from pathlib import Path

SECRET_KEY = "tests"
USE_TZ = True
BASE_DIR = Path(os.environ["PGQUEUE_TEST_BASE_DIR"])
INSTALLED_APPS = ["django_pgqueue"]
