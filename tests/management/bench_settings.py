"""Settings of the command under test: the suite's, on the suite's test databases."""

from __future__ import annotations

import json
import os

from tests.settings import *  # noqa: F403  # Django's way to widen settings.
from tests.settings import DATABASES

_told = json.loads(os.environ["PGQUEUE_TEST_BENCH"])

for _alias, _changes in _told["databases"].items():
    DATABASES[_alias] = {**DATABASES[_alias], **_changes}

PGQUEUE = _told["pgqueue"]
