"""Where the example is, and how a process of the demonstration becomes part of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
CHECKOUT = PROJECT.parent


def set_up_django() -> None:
    """Do what manage.py does: find the settings, load the apps."""
    if str(PROJECT) not in sys.path:
        sys.path.insert(0, str(PROJECT))
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    import django

    django.setup()
