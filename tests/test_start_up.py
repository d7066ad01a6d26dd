"""What every process of a project pays for the app: the modules that it loads."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import django
import pytest

from django_pgqueue.conf import EMAIL_BACKEND

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
FOR_SOME = ("backends", "spark", "management", "testing", "worker")


@pytest.mark.parametrize(
    "apps, most, extra",
    [(MODELS, 88, ()), ([*MODELS, *ADMIN], 268, ("worker",))],
    ids=["app", "with the admin"],
)
def test_setup_loads_little(tmp_path, apps, most, extra):
    """
    No module of Spark, of the commands or of the testing tools; of a worker's, the
    admin has the few that say what workers serve.
    """
    loaded = loaded_by(tmp_path, SETTINGS.format(apps=apps))

    assert len(loaded) <= most
    unasked = {name for name in loaded if name.split(".")[1] in FOR_SOME}
    assert {name.split(".")[1] for name in unasked} <= set(extra), sorted(unasked)
    assert len(unasked) <= 5


def test_who_stores_mails_knows_their_task(tmp_path):
    """From the start, so that the admin of a web server knows it before a mail is."""
    task = f"{OURS}.backends.mail_connections"
    backend = f'"BACKEND": "{EMAIL_BACKEND}"'
    mails = (
        f'MAILERS = {{"default": {{{backend}}}}}'
        if django.VERSION >= (6, 1)
        else f'EMAIL_BACKEND = "{EMAIL_BACKEND}"'
    )

    assert task in loaded_by(tmp_path, SETTINGS.format(apps=MODELS) + mails)


def loaded_by(tmp_path, settings):
    """Return which of our modules django.setup() loads."""
    (tmp_path / "start_up_settings.py").write_text(settings)
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
    return json.loads(done.stdout)
