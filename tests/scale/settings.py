"""Settings of the workers of python -m tests.scale, who purge nothing themselves."""

from __future__ import annotations

import json
import os

from tests.settings import *  # noqa: F403  # Django's way to widen settings.
from tests.settings import DATABASES

_told = json.loads(os.environ["PGQUEUE_SCALE_WORKER"])

DATABASES["default"]["NAME"] = _told["database"]
DATABASES["default"].setdefault("OPTIONS", {}).update(_told["options"])
PGQUEUE = {
    "TASK_MODULES": ["tasks"],
    "RETENTION": {"archive": None, "dead_letters": None},
    "RESULT_TTL_SECONDS": 86_400 * 365,
    **_told["pgqueue"],
}
