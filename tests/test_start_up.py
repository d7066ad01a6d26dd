"""What every process of a project pays for the app: the modules that it loads."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SETTINGS = """
SECRET_KEY = "none"
INSTALLED_APPS = {apps!r}
DATABASES = {{"default": {{"ENGINE": "django.db.backends.postgresql", "NAME": "none"}}}}
MIDDLEWARE = []
"""
SET_UP = """
import json, sys
import django
django.setup()
print(json.dumps(sorted(name for name in sys.modules if name.startswith(%r))))
"""
OURS = "django_pgqueue"
MODELS = ["django.contrib.contenttypes", "django.contrib.auth", OURS]
ADMIN = ["django.contrib.admin", "django.contrib.messages", "django.contrib.sessions"]

# What only somebody who asks for it needs.
FOR_SOME = ("spark", "management", "testing", "worker")


@pytest.mark.parametrize(
    "apps, most, extra",
    [(MODELS, 74, ()), ([*MODELS, *ADMIN], 228, ("worker",))],
    ids=["app", "with the admin"],
)
def test_setup_loads_little(tmp_path, apps, most, extra):
    """
    No module of Spark, of the commands or of the testing tools; of a worker's, the
    admin has the few that say what workers serve.
    """
    (tmp_path / "start_up_settings.py").write_text(SETTINGS.format(apps=apps))
    done = subprocess.run(
        [sys.executable, "-c", SET_UP % f"{OURS}."],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "start_up_settings",
            "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        },
        timeout=60,
        check=True,
    )
    loaded = json.loads(done.stdout)

    assert len(loaded) <= most
    unasked = {name for name in loaded if name.split(".")[1] in FOR_SOME}
    assert {name.split(".")[1] for name in unasked} <= set(extra), sorted(unasked)
    assert len(unasked) <= 5
