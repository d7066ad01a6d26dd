"""DATABASE: an entry of DATABASES, from libpq's environment variables."""

from __future__ import annotations

import os

DATABASE = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": os.environ["PGDATABASE"],
    "USER": os.environ.get("PGUSER", ""),
    "PASSWORD": os.environ.get("PGPASSWORD", ""),
    "HOST": os.environ.get("PGHOST", ""),
    "PORT": os.environ.get("PGPORT", ""),
    # Django's default is a new connection for each request; a producer has one.
    "CONN_MAX_AGE": None,
}
