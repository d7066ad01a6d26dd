"""The fork server: what it forks is as what a new Python starts."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.harness.fork_server import FRESH, REPOSITORY, SETTINGS, start

# Of what a worker, its tasks and its tests go by. Loaded modules are what differs.
PROGRAM = """
import gc, json, logging, os, signal, sys, threading, warnings
from django.conf import settings
from django.db import connections
from django_pgqueue.conf import get_settings
from django_pgqueue.tasks.registry import declared_names

print(json.dumps({
    "environment": dict(os.environ),
    "arguments": sys.argv,
    "folder": os.getcwd(),
    "umask": os.umask(0o022),
    "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "files": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
    "handlers": {number.name: str(signal.getsignal(number))
                 for number in signal.valid_signals() if hasattr(number, "name")},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "standard": [[f.fileno(), f.encoding, f.errors, f.line_buffering]
                 for f in (sys.stdin, sys.stdout, sys.stderr)],
    "threads": [thread.name for thread in threading.enumerate()],
    "collector": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
    "filters": len(warnings.filters),
    "loggers": [logger.name for logger in logging.root.manager.loggerDict.values()
                if getattr(logger, "handlers", None)],
    "databases": connections.settings,
    "settings": {name: repr(getattr(settings, name))
                 for name in dir(settings) if name.isupper()},
    "connected": [each.connection is not None for each in connections.all()],
    "queue": repr(get_settings()),
    "tasks": declared_names(),
}, default=str))
sys.exit(3)
"""


@pytest.fixture
def started(tmp_path):
    """A function that starts a program, forked or new, and returns its process."""

    def started(name, program, **changes):
        told = {"databases": {"other": {"NAME": "x"}}, "pgqueue": {"LEASE_SECONDS": 7}}
        environment = {
            **os.environ,
            "DATABASE_URL": "postgres:///nowhere",
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "PGQUEUE_TEST_WORKER": json.dumps(told),
            "PYTHONPATH": str(REPOSITORY),
            **changes,
        }
        with (tmp_path / name).open("ab") as output:
            return start(["shell", "-c", program], environment, output)

    return started


def test_a_forked_process_is_as_a_new_one(started, tmp_path):
    """Its environment, files, signals, settings, tasks and exit status."""
    new = started("new", PROGRAM, **{FRESH: "1"})
    forked = started("forked", PROGRAM)

    assert [3, 3] == [new.wait(60), forked.wait(60)]
    assert isinstance(new, subprocess.Popen)
    assert not isinstance(forked, subprocess.Popen)
    expected, found = (
        json.loads((tmp_path / name).read_text().splitlines()[-1])
        for name in ("new", "forked")
    )
    del expected["environment"][FRESH]
    assert expected == found
