"""Settings of the worker processes that tests start: the suite's, on its database."""

from __future__ import annotations

import json
import os

from tests.settings import *  # noqa: F403  # Django's way to widen settings.
from tests.settings import DATABASES, INSTALLED_APPS

# What the test that started it hands down; see tests/harness/worker_process.py.
_told = json.loads(os.environ["PGQUEUE_TEST_WORKER"])

for _alias, _changes in _told["databases"].items():
    # An alias that the suite does not have is one more way to "default".
    DATABASES[_alias] = {**DATABASES.get(_alias, DATABASES["default"]), **_changes}

# See tests/settings.py.
_is_pooled = "default_direct" in DATABASES

INSTALLED_APPS = [*INSTALLED_APPS, "tests.crashes.failpoints.FailpointsConfig"]
PGQUEUE = {
    "TASK_MODULES": [
        "tasks",
        "crash_tasks",
        "standard_tasks",
        "control_tasks",
        "fair_tasks",
        "lane_tasks",
        "pool_tasks",
        "accumulate_tasks",
        "option_tasks",
    ],
    **({"LISTEN_DATABASE": "default_direct"} if _is_pooled else {}),
    **_told["pgqueue"],
}

globals().update(_told.get("settings", {}))
