"""What a page tells to write is written, and run on the database."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import django
import psycopg
import pytest
from django.apps import AppConfig
from django.db import connection, connections
from django.dispatch import Signal
from django.utils.module_loading import import_string

from django_pgqueue import conf, signals
from django_pgqueue.schedules import declare as schedules
from django_pgqueue.spark import job as pipelines
from django_pgqueue.tasks import options, pull_queues, registry
from django_pgqueue.topics import consume, subscribe
from django_pgqueue.topics import registry as topics
from tests.docs import reader, shop
from tests.docs.samples import (
    HOME,
    PAGES,
    ROOT,
    Sample,
    module_of,
    name_of,
    samples_of,
)
from tests.docs.spark_reader import spark_samples

# Django's newer words for the same: the pages speak that of all supported versions.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
]

# Of these the tests are another file: it is a test file itself.
ELSEWHERE = {"docs/howto/test-your-tasks.md": "tests/testing/test_howto.py"}

# One may take the sample with this text instead of those before it.
INSTEAD = {"docs/reference/topics.md": ["class OrderEvent"]}

# Samples of a newer Django.
NEWER = {
    "docs/howto/use-django-tasks.md": {
        "from django.tasks import task": (6, 0),
        "@task(retries=5": (6, 1),
    }
}

# So many take a worker half a minute.
FEWER = {"docs/tutorial/publish-and-subscribe.md": [("50_000", "60"), ("50000", "60")]}

README = ROOT / "README.md"

# Modules that samples make.
OF_READERS = {"config", "httpx", "shop"}

RUN = [page for page in PAGES if samples_of(page) and name_of(page) not in ELSEWHERE]


class Project:
    """The project of a page's reader, with nothing but what reader.py says."""

    def __init__(self, page: Path, patch: pytest.MonkeyPatch, settings: Any) -> None:
        self.page = name_of(page)
        self.patch = patch
        self.settings = settings
        self.forget_declarations()
        self.home = module_of(HOME)
        self.home.update(reader.GRANTED)
        has = reader.HAS.get(self.page, "")
        if any(name in page.read_text("utf-8") + has for name in shop.MODELS):
            models = shop.declare()
            shop.migrate()
            module_of("shop.models").update(models)
            self.home.update(models)
        for name, code in reader.MODULES.get(self.page, {}).items():
            patch.delitem(sys.modules, name, raising=False)
            self.does(code, module_of(name))
        self.does(has)

    def forget_declarations(self) -> None:
        """Nothing is declared but the tasks and pipeline jobs of the suite."""
        for module in (subscribe, consume, topics, schedules):
            self.patch.setattr(module, "_declared", {})
        self.patch.setattr(pull_queues, "_declared", {})
        self.patch.setattr(options, "pull_queues", set())
        self.patch.setattr(pull_queues, "pull_queues", options.pull_queues)
        self.patch.setattr(schedules, "_entries", {})
        self.patch.setattr(registry, "tasks", dict(registry.tasks))
        self.patch.setattr(pipelines, "_jobs", dict(pipelines._jobs))

    def does(self, code: str, space: dict[str, Any] | None = None) -> None:
        """Run what is no sample."""
        space = self.home if space is None else space
        space["the"] = reader.the
        exec(compile(code, f"reader of {self.page}", "exec"), space)  # noqa: S102
        del space["the"]

    def runs(self, sample: Sample) -> None:
        """Run a sample, and what the reader does before it, or before a part of it."""
        if any(text in sample.source for text in INSTEAD.get(self.page, [])):
            self.forget_declarations()
        for name in sample.classes:
            shop.forget(name)
        for more, fewer in FEWER.get(self.page, []):
            sample = replace(sample, source=sample.source.replace(more, fewer))
        space = module_of(sample.module)
        for step in sample.steps():
            for text, code in reader.MEANWHILE.get(self.page, {}).items():
                if text in step.source:
                    self.does(code)
            step.run(space)
        shop.migrate()
        self.settings.TASKS = space.get("TASKS", self.settings.TASKS)
        check_settings(space)


def check_settings(space: dict[str, Any]) -> None:
    """What a sample says of settings is right in the eyes of who reads them."""
    assert [] == conf.problems(space.pop("PGQUEUE", {}))
    for router in space.pop("DATABASE_ROUTERS", []):
        assert callable(import_string(router)().db_for_read)
    for app in space.pop("INSTALLED_APPS", []):
        assert app == "shop" or AppConfig.create(app)
    for alias, said in space.pop("TASKS", {}).items():
        assert [] == list(import_string(said["BACKEND"])(alias, said).check())
    for alias, said in space.pop("DATABASES", {}).items():
        ours = connections.settings["default"]
        with psycopg.connect(dbname=said["NAME"], **said["OPTIONS"]) as opened:
            assert "default" == alias
            assert ours["NAME"] == opened.info.dbname


def is_too_new(sample: Sample) -> bool:
    """Whether it needs a newer Django than this one."""
    newer = NEWER.get(name_of(sample.page), {})
    wanted = [version for text, version in newer.items() if text in sample.source]
    return any(version > django.VERSION[:2] for version in wanted)


@pytest.fixture
def project(db, monkeypatch, settings, tmp_path):
    """``project(page)``: of which nothing is left after the test."""
    before = dict(sys.modules)
    signalled = {
        each: list(each.receivers)
        for each in vars(signals).values()
        if isinstance(each, Signal)
    }
    settings.BASE_DIR = tmp_path
    settings.DEFAULT_FROM_EMAIL = "shop@example.org"
    (tmp_path / "receipts").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", url_of_database())
    with connection.cursor() as cursor:
        # Rolled back, too.
        cursor.execute("ALTER TABLE pgqueue_job ALTER COLUMN id RESTART")
        cursor.execute("ALTER TABLE pgqueue_workflow ALTER COLUMN id RESTART")
    with shop.installed():
        yield lambda page: Project(page, monkeypatch, settings)
    for name in set(sys.modules) - set(before):
        if name.partition(".")[0] in OF_READERS:
            del sys.modules[name]
    for each, receivers in signalled.items():
        each.receivers = receivers
        each.sender_receivers_cache.clear()


def url_of_database() -> str:
    """Return the tests' database, as a URL that says all by its options."""
    params = connection.get_connection_params()
    options = {
        k: params[k] for k in ("host", "port", "user", "password") if k in params
    }
    return f"postgres:///{params['dbname']}?{urlencode(options)}"


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_samples_of_a_page_run(page, project):
    """In their order, by a reader who has what reader.py says and nothing else."""
    mine = project(page)
    with_spark = spark_samples(page)  # By test_spark_samples.py.
    for sample in samples_of(page):
        if sample not in with_spark and not is_too_new(sample):
            mine.runs(sample)
    mine.does(reader.THEN.get(mine.page, ""))


@pytest.mark.parametrize(
    "right, wrong, error",
    [
        ("import task", "import tusk", "cannot import name 'tusk'"),
        ("=order.id", "=odrer.id", "name 'odrer' is not defined"),
    ],
)
def test_a_wrong_name_in_a_page_is_an_error(project, right, wrong, error):
    """What is granted hides no misspelt name, neither of ours nor of the reader's."""
    mine = project(README)
    good = samples_of(README)[0]
    assert right in good.source

    with pytest.raises(Exception, match=error):
        mine.runs(replace(good, source=good.source.replace(right, wrong)))


def test_a_wrong_setting_in_a_page_is_an_error(project):
    """As is a session that shows something else."""
    mine = project(README)
    sample = samples_of(README)[0]
    with pytest.raises(AssertionError, match="LEASE"):
        mine.runs(replace(sample, source="PGQUEUE = {'LEASE_SECONDS': 'soon'}"))
    with pytest.raises(AssertionError, match="Got"):
        mine.runs(replace(sample, language="pycon", source=">>> 1 + 1\n3\n"))
