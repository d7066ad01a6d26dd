"""Settings of the command under test: the suite's, on the suite's test databases."""

from __future__ import annotations

import json
import os

from tests.settings import *  # noqa: F403  # Django's way to widen settings.
from tests.settings import DATABASES

for _alias, _changes in json.loads(os.environ["PGQUEUE_TEST_BENCH"]).items():
    DATABASES[_alias] = {**DATABASES[_alias], **_changes}
