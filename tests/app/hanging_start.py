"""A project whose workers hang at their start, while a file is there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from django.conf import settings

from django_pgqueue import signals
from django_pgqueue.worker.supervise import supervisor

# The patience of the supervisor, so that a test need not have it.
supervisor.START_SECONDS_MAX = 5.0


def hang(**fields: Any) -> None:
    """Hang while the file of settings.HANGS_WHILE is there."""
    while Path(settings.HANGS_WHILE).exists():
        time.sleep(0.05)


signals.worker_started.connect(hang)
