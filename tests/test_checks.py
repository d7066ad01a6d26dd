"""System checks: each trap is told with its id, its value and its way out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import django
import pytest
from django.core import checks
from django.db import connection, connections
from django.db.backends.postgresql import psycopg_any

import django_pgqueue.checks
from django_pgqueue import consume, cron, subscribe, task
from django_pgqueue.checks import check_configuration, check_database, check_deployment
from django_pgqueue.conf import EMAIL_BACKEND
from django_pgqueue.contract.document import project_document, text_of
from django_pgqueue.findings.registry import REGISTRY
from django_pgqueue.schedules import declare
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.options import pull_queues
from django_pgqueue.topics import consume as consume_module
from django_pgqueue.topics import subscribe as subscribe_module
from tests.app.models import Order
from tests.app.tasks import noop
from tests.harness.captures import capture, migrations
from tests.harness.mail_server import EMAIL, mail_settings

__all__ = ["migrations"]

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path(django_pgqueue.checks.__file__).read_text(encoding="utf-8")
BACKEND = ROOT / "django_pgqueue" / "backends" / "tasks.py"
PAGE = ROOT / "docs" / "reference" / "checks.md"


@pytest.fixture
def config(monkeypatch):
    """Change DATABASES["default"] for Django's connections, without connecting."""

    def change(alias="default", **changes):
        for key, value in changes.items():
            monkeypatch.setitem(connections.settings[alias], key, value)

    return change


@pytest.fixture
def own_registry(monkeypatch):
    """The declared tasks, as they were after the test."""
    monkeypatch.setattr(registry, "tasks", dict(registry.tasks))


@pytest.fixture
def alias(monkeypatch):
    """Add a database alias; nothing connects to it."""

    def add(name, **changes):
        added = {**connections.settings["default"], **changes}
        monkeypatch.setitem(connections.settings, name, added)
        monkeypatch.setattr(connections._connections, name, None, raising=False)
        delattr(connections._connections, name)

    return add


def found(*ids, by=check_configuration, **kwargs):
    """Return the messages of *by*; assert that they have just these ids."""
    messages = by(None, **kwargs)
    assert list(ids) == [message.id.removeprefix("pgqueue.") for message in messages]
    for message in messages:
        assert message.hint
    return messages[0].msg + " " + messages[0].hint if messages else ""


# Modules ---------------------------------------------------------------------------


def test_a_module_that_cannot_be_imported_is_told(monkeypatch):
    """As a warning: who is not a worker can do without its tasks."""
    failed = {"shop.tasks": ImportError("no module named blunder")}
    monkeypatch.setattr(registry, "_failed", failed)

    told = found("W020")

    assert "shop.tasks cannot be imported: ImportError: no module named blun" in told


# The contract ----------------------------------------------------------------------


def test_a_change_that_breaks_the_contract_is_told(settings, tmp_path, own_registry):
    """With the way out; a file that is not there, with the command that writes it."""
    path = tmp_path / "asyncapi.json"
    settings.PGQUEUE = {"CONTRACT": path}
    assert f"pgqueue asyncapi > {path}" in found("W030")
    task(name="shop.send")(lambda order_id: None)
    path.write_text(text_of(project_document()), encoding="utf-8")
    found()
    task(name="shop.send")(lambda order_id, note: None)
    assert "parameter note is required now" in found("W030")


def test_hints_that_cannot_be_checked_are_told(own_registry, monkeypatch):
    """Where they are to be: by name; and a schedule whose arguments do not fit."""
    monkeypatch.setattr(declare, "_declared", dict(declare._declared))

    def send(order_id: Missing): ...  # noqa: F821

    def nightly(day: int): ...

    task(name="shop.free")(send)
    found()
    task(name="shop.send", check_types=True)(send)
    assert "shop.send has check_types" in found("E020")
    del registry.tasks["shop.send"]
    made = task(name="shop.nightly", check_types=True)(nightly)
    cron("0 3 * * *", tz="UTC", args=["x"])(made)
    assert "day is 'x', a str" in found("E020")


def test_a_handler_that_expects_something_else_is_told(own_registry, monkeypatch):
    """Of messages, and of lists of them; no hint, or a wider one, says nothing."""
    for module in (subscribe_module, consume_module):
        monkeypatch.setattr(module, "_declared", {})

    def free(message): ...

    def wide(messages: list): ...

    def order(payload: dict): ...

    def orders(messages: list[dict]): ...

    subscribe("orders", name="shop.free")(free)
    consume("orders", group="a", name="shop.wide")(wide)
    found()
    monkeypatch.setattr(subscribe_module, "_declared", {})
    subscribe("orders", name="shop.order")(order)
    assert "expects dict by its type hint, and is given a Message" in found("W031")
    monkeypatch.setattr(subscribe_module, "_declared", {})
    consume("orders", group="b", name="shop.orders")(orders)
    assert "expects list[dict] by its type hint" in found("W031")


# The page ----------------------------------------------------------------------------


def ids_in_code():
    kinds = {"_error": "E", "_warning": "W"}
    return {f"pgqueue.{check.id}" for check in REGISTRY.values() if check.id} | {
        f"pgqueue.{kinds[name]}{int(number):03}"
        for name, number in re.findall(r"(_error|_warning)\(\s*(\d+),", SOURCE)
    }


def test_every_check_is_on_the_reference_page_and_nothing_else():
    """Both ways."""
    page = PAGE.read_text(encoding="utf-8")
    own = set(re.findall(r"^\| `(pgqueue\.[EW]\d{3})`", page, re.MULTILINE))

    # The backend's own check is tested beside it, in tests/backends/test_tasks.py.
    backend = set(re.findall(r'id="(pgqueue\.E\d+)"', BACKEND.read_text("utf-8")))

    assert len(ids_in_code()) > 20
    assert ids_in_code() | backend == {i for i in own if int(i[-3:]) < 100}


def test_every_check_has_a_test():
    """By its id, in this file."""
    tests = Path(__file__).read_text(encoding="utf-8")
    missing = {
        check
        for check in ids_in_code()
        if f'"{check.removeprefix("pgqueue.")}"' not in tests
    }

    assert set() == missing


# Settings ----------------------------------------------------------------------------


def test_a_project_without_settings_has_no_findings(settings):
    """Nor has the test suite's own."""
    del settings.PGQUEUE

    found()
    found(by=check_deployment)


@pytest.mark.parametrize(
    "check, value, words",
    [
        ("E001", None, "PGQUEUE must be a dict, not NoneType."),
        ("E001", {"LEASE_SECOND": 5}, "Did you mean 'LEASE_SECONDS'?"),
        ("E001", {"LISTEN": "false"}, "must be True or False, not 'false'."),
        ("E001", {"LEASE_SECONDS": -5}, "PGQUEUE['LEASE_SECONDS'] is -5"),
        ("E002", {"DATABASE": "defualt"}, "Did you mean 'default'?"),
        ("E006", {"DEFAULTS": {"middleware": ["shop.nowhere.timed"]}}, "nowhere.timed"),
        ("E006", {"QUEUES": {"default": {"middleware": ["nodots"]}}}, "nodots"),
        ("W001", {"QUEUES": {"mial": {"priority": 5}}}, "Did you mean 'mail'?"),
        ("W002", {"TASK_MODULES": ["tasks", "app.tasks"]}, "'app.tasks'"),
        ("W004", {"RETENTION": {"archive": "1h"}}, "86,400"),
        ("W010", {"LISTEN": False, "LISTEN_DATABASE": "default"}, "nobody listens"),
        (
            "W021",
            {"REPROCESS": [{"reason": "exhausted", "task": "tests.app.tasks.ad"}]},
            "Did you mean 'tests.app.tasks.add'?",
        ),
    ],
)
def test_what_is_wrong_with_settings_is_told_instead_of_a_traceback(
    settings, check, value, words
):
    """With the nearest name, or the limit; once, and not for each task."""
    settings.PGQUEUE = value

    assert words in found(check)


def test_another_engine(settings, alias):
    """Jobs need PostgreSQL."""
    alias("lite", ENGINE="django.db.backends.sqlite3", NAME=":memory:", OPTIONS={})
    settings.PGQUEUE = {"DATABASE": "lite"}

    assert "a database of sqlite, and not PostgreSQL" in found("E003")


def test_psycopg_2(monkeypatch):
    """Django takes it where psycopg 3 is missing."""
    monkeypatch.setattr(psycopg_any, "is_psycopg3", False)

    assert "pip install" in found("E004")


def test_a_listen_database_that_is_not_there_or_another_engine(settings, alias):
    """Before a worker says it every few seconds."""
    settings.PGQUEUE = {"LISTEN_DATABASE": "direct"}
    assert "LISTEN_DATABASE" in found("E005")

    alias("direct", ENGINE="django.db.backends.sqlite3", NAME=":memory:", OPTIONS={})
    assert "sqlite" in found("E005")


def test_routers_that_send_the_models_elsewhere(settings):
    """The tables would be made where nobody looks."""
    settings.PGQUEUE = {"DATABASE": "queue"}
    settings.DATABASE_ROUTERS = []

    assert "django_pgqueue.models.router.QueueRouter" in found("E007")


def test_options_that_do_not_go_together(settings, own_registry):
    """A queue's async middleware around a plain task."""

    @task(name="checks.plain", queue="plain")
    def plain():
        """Nothing."""

    settings.PGQUEUE = {"QUEUES": {"plain": {"middleware": [async_middleware]}}}

    assert "checks.plain" in found("E008")


def test_schedules_go_by_a_time_zone(settings, monkeypatch):
    """An old name in TIME_ZONE matters where a schedule has no zone of its own."""
    monkeypatch.setattr(declare, "_declared", {})
    settings.TIME_ZONE = "EST5EDT"
    cron("@daily", name="own zone", tz="UTC")(noop)
    assert "" == found()
    cron("@daily", name="without a zone")(noop)
    assert "'EST5EDT' is an old name" in found("E010")


@pytest.fixture
def _no_subscriptions(monkeypatch):
    """Nothing is subscribed but what the test subscribes."""
    monkeypatch.setattr(subscribe_module, "_declared", {})
    monkeypatch.setattr(registry, "tasks", dict(registry.tasks))


def two(first, second):
    """Declare two handlers."""

    @subscribe(name="shop.one", **{"queue": "q", **first})
    def one(message):
        pass

    @subscribe(name="shop.two", **{"queue": "q", **second})
    def other(message):
        pass


@pytest.mark.usefixtures("_no_subscriptions")
@pytest.mark.parametrize(
    "first, second",
    [
        ({"pattern": "orders"}, {"pattern": "orders.paid"}),
        ({"pattern": "orders.*"}, {"pattern": "*.paid", "where": {"a": 1}}),
        (
            {"pattern": "*", "where": {"a": 1, "b": 2}},
            {"pattern": "mail", "where": {"b": 2, "a": 1}},
        ),
    ],
)
def test_two_handlers_of_a_message_in_one_queue(first, second):
    """The error names both, the queue, and the ways out."""
    two(first, second)
    text = found("E011")
    for word in ("shop.one", "shop.two", "'q'", repr(first["pattern"])):
        assert word in text


@pytest.mark.usefixtures("_no_subscriptions", "migrations")
@pytest.mark.parametrize(
    "said, told",
    [
        (
            {},
            "captures them as 'testapp.order': it gets none. Captured it is with topi",
        ),
        ({"topic": "orders.all"}, "captures them on 'delete'"),
        (
            {"topic": "orders.all", "on": ["update"], "fields": ["name"]},
            "captures them with the field 'name'",
        ),
    ],
)
def test_changes_that_no_migration_captures(said, told):
    """By what the last of them says, whether it is applied or not."""
    subscribe(Order, name="shop.on_change", **said)(lambda change: None)
    count = len(check_configuration(None))
    assert told in found(*["E018"] * count)


def test_what_a_capture_tells_of_secrets_and_of_columns_that_are_gone(db, settings):
    """Of those that were named; of all columns, secret ones are left out."""
    capture("testapp.Order", topic="orders.some", fields=["name"])
    capture("auth.User")
    assert "" == found(by=check_database, databases=["default"])
    settings.PGQUEUE = {"REDACT": ["name"]}
    both = check_database(None, databases=["default"])
    assert "auth_user to auth.user tells username, first_name" in both[0].msg
    settings.PGQUEUE = {"REDACT": ["^name"]}
    assert "orders.some tells name," in found(
        "W028", by=check_database, databases=["default"]
    )
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE testapp_order RENAME COLUMN name TO title")
    text = found("W029", by=check_database, databases=["default"])
    assert "columns that their tables do not have: testapp_order to orders.some" in text


async def async_middleware(context, call_next):
    """Fit for async tasks alone."""


# Traps -------------------------------------------------------------------------------


@pytest.fixture
def _parcels():
    """A pull queue."""
    pull_queues.add("parcels")
    yield
    pull_queues.discard("parcels")


@pytest.mark.usefixtures("_parcels")
def test_what_is_for_jobs_is_refused_of_a_pull_queue(settings):
    """No worker claims from it; what holds for messages, too, is no error."""
    holds = {"depth_max": 9, "on_full": "block", "block_seconds": 5}
    settings.PGQUEUE = {"QUEUES": {"parcels": holds}}
    found()

    limit = {"rate": "100/m", "burst": 5, "concurrency": 2}
    for wrong in (limit, {"fair_by": "customer"}, {"priority": 5}):
        settings.PGQUEUE = {"QUEUES": {"parcels": {**holds, **wrong}}}
        named = ", ".join(map(repr, wrong))
        assert f"has {named}, and 'parcels' is a pull queue" in found("E013")


def test_mails_that_would_come_back_into_the_queue(settings):
    """Or that have no way out at all; who stores no mails is not asked."""
    settings.PGQUEUE = {"EMAIL": {"through": "nowhere.Backend"}}
    found()

    for name, value in mail_settings(25).items():
        setattr(settings, name, value)
    assert "nowhere.Backend" in found("E012")
    through = EMAIL_BACKEND if django.VERSION < (6, 1) else "default"
    settings.PGQUEUE = {"EMAIL": {"through": through}}
    assert "puts mails into the queue again" in found("E012")
    settings.PGQUEUE = {"EMAIL": EMAIL}
    found()


def test_smtp_without_a_time_out(settings):
    """A server that says nothing would hold a thread for ever."""
    for name, value in mail_settings(25, timeout=None).items():
        setattr(settings, name, value)
    settings.PGQUEUE = {"EMAIL": EMAIL}

    assert "EMAIL_TIMEOUT" in found("W019")


def test_a_lease_that_is_shorter_than_a_silent_network(settings, config):
    """On TCP alone: a socket of the same machine does not go silent."""
    settings.PGQUEUE = {"LEASE_SECONDS": 10}
    config(HOST="/run/postgresql")
    found()

    config(HOST="db.example")
    assert "given up after 30 s" in found("W003")

    config(OPTIONS={"tcp_user_timeout": 9_000})
    found()


def test_requests_that_are_transactions_of_another_database(settings, config):
    """delay() would raise in every view."""
    settings.PGQUEUE = {"DATABASE": "queue"}
    config(ATOMIC_REQUESTS=True)

    assert "on_commit" in found("W005")


def test_connections_without_autocommit(config):
    """No hook runs after a commit by hand."""
    config(AUTOCOMMIT=False)

    assert "AUTOCOMMIT" in found("W006")


@pytest.mark.parametrize("level,ids", [(2, ()), (3, ("W007",)), (4, ("W007",))])
def test_an_isolation_level_above_read_committed(config, level, ids):
    """Claims and acks could fail."""
    level = psycopg_any.IsolationLevel(level)
    config(OPTIONS={"isolation_level": level})

    found(*ids)


@pytest.mark.parametrize(
    "pool,ids",
    [
        (True, ("W008",)),
        ({"min_size": 2, "max_size": 4}, ("W008",)),
        ({"max_size": 8}, ()),
        ({"min_size": 10}, ()),
        (False, ()),
    ],
)
def test_a_pool_that_is_smaller_than_a_worker(config, pool, ids):
    """Threads would wait for one another."""
    config(OPTIONS={"pool": pool})

    found(*ids)


@pytest.mark.parametrize(
    "changes", [{"PORT": "6432"}, {"PORT": 6432}, {"DISABLE_SERVER_SIDE_CURSORS": True}]
)
def test_listening_through_a_pooler(settings, config, alias, changes):
    """A direct alias, or no LISTEN, fixes it."""
    alias("direct")
    config(**changes)
    assert "pooler" in found("W009")

    settings.PGQUEUE = {"LISTEN_DATABASE": "direct"}
    found()
    settings.PGQUEUE = {"LISTEN": False}
    found()


def test_listening_on_a_database_of_another_name(settings, alias):
    """A NOTIFY does not leave its database."""
    alias("direct", NAME="elsewhere")
    settings.PGQUEUE = {"LISTEN_DATABASE": "direct"}

    assert "elsewhere" in found("W011")


# Deployment --------------------------------------------------------------------------


def test_jobs_that_run_inside_of_requests(settings):
    """Right for tests alone."""
    settings.PGQUEUE = {"MODE": "immediate"}

    assert "MODE" in found("W014", by=check_deployment)


def test_nothing_is_redacted(settings):
    """Secrets among arguments are shown."""
    settings.PGQUEUE = {"REDACT": []}

    assert "view_payload" in found("W015", by=check_deployment)


def test_kept_connections_that_are_not_tested(config):
    """A restart of the database costs a job for each thread."""
    config(CONN_MAX_AGE=60)
    assert "CONN_HEALTH_CHECKS" in found("W016", by=check_deployment)

    config(CONN_HEALTH_CHECKS=True)
    found(by=check_deployment)


# The database ------------------------------------------------------------------------


@contextmanager
def renamed(kind, name, other):
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER {kind} {name} RENAME TO {other}")
        yield
        cursor.execute(f"ALTER {kind} {other} RENAME TO {name}")


def test_a_missing_migration(db, monkeypatch):
    """A warning, since `migrate` runs checks first; it is not told there at all."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'pgqueue'")

    text = found("W012", by=check_database, databases=["default"])
    assert "0001_core" in text
    assert "migrate pgqueue --database default" in text

    monkeypatch.setattr(sys, "argv", ["manage.py", "migrate"])
    found(by=check_database, databases=["default"])


def test_a_missing_index(db):
    """Claims would scan the table."""
    with renamed("INDEX", "pgqueue_job_claim", "hidden"):
        text = found("W013", by=check_database, databases=["default"])

    assert "REINDEX INDEX CONCURRENTLY pgqueue_job_claim" in text


def test_a_day_that_is_closed_before_it_is_over(db):
    """Nobody can publish into it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgqueue_log_day (day, last_id)"
            " VALUES ((now() AT TIME ZONE 'UTC')::date + 1, 0)"
        )

    text = found("W017", by=check_database, databases=["default"])
    assert "DELETE FROM pgqueue_log_day" in text


def test_a_role_that_cannot_make_days(db):
    """It works for a week; one that was granted the functions cannot drop days."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE ROLE shop_web; GRANT SELECT ON django_migrations TO shop_web;"
            "GRANT SELECT ON pgqueue_log_day TO shop_web;"
            "GRANT USAGE ON SCHEMA public TO shop_web; SET LOCAL ROLE shop_web"
        )
        text = found("W018", by=check_database, databases=["default"])
        assert "no job can be settled" in text
        assert "GRANT EXECUTE ON FUNCTION pgqueue_make_archive_day(date)" in text
        cursor.execute("RESET ROLE; DROP OWNED BY shop_web; DROP ROLE shop_web")


# Where Django runs them --------------------------------------------------------------


def test_the_checks_are_known_to_django(settings):
    """By their tag; those for deployment where they are asked for."""
    settings.PGQUEUE = {"MODE": "immediate", "LISTEM": True}

    def ids(**kwargs):
        return {message.id for message in checks.run_checks(tags=["pgqueue"], **kwargs)}

    assert {"pgqueue.E001"} == ids()
    assert {"pgqueue.E001", "pgqueue.W014"} == ids(include_deployment_checks=True)


def test_a_wrong_setting_does_not_keep_django_from_starting(tmp_path):
    """manage.py check says what is wrong, without a traceback."""
    (tmp_path / "wrong.py").write_text(
        "from tests.settings import *\nPGQUEUE = {'LEASE_SECOND': 5, 'MODE': 'x'}\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "django", "check"],
        cwd=tmp_path,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "wrong",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert 1 == ended.returncode
    assert "(pgqueue.E001) PGQUEUE has the unknown key 'LEASE_SECOND'" in ended.stderr
    assert "(pgqueue.E001) PGQUEUE['MODE'] is 'x'" in ended.stderr
    assert "Traceback" not in ended.stderr
