"""Child: a run of a pipeline job in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

# What a process may take to end that was told to; it gives Spark some of it.
END_SECONDS_MAX = 60.0


def start(
    job: str, options: Mapping[str, Any], *said: str, **how: Any
) -> subprocess.Popen[bytes]:
    """
    Begin a run of *job*.

    Args:
        job: The pipeline job.
        options: Those of the job.
        said: Further arguments of pgqueue_pipeline run.
        how: Further arguments of Popen.
    """
    command = [sys.executable, "-m", "django", "pgqueue_pipeline", "run", job]
    for name, value in options.items():
        command += ["--option", f"{name}={value}"]
    return subprocess.Popen(  # noqa: S603  # Our own command.
        [*command, *said],
        # manage.py may be in another folder than the one that we are in.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        **how,
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop the process if it runs, as an operator would; in the end, by force."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
