"""Settings of a project with nothing of its own, as start.py tells its processes."""

from __future__ import annotations

import json
import os

# Whoever imports every module of the package has no such project.
_told = json.loads(
    os.environ.get("PGQUEUE_BENCH_PROJECT", '{"apps": [], "database": {}}')
)

SECRET_KEY = "none"  # noqa: S105  # Of nobody.
USE_TZ = True
INSTALLED_APPS = _told["apps"]
DATABASES = {"default": _told["database"]}
