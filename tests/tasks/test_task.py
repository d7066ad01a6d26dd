"""Task: every way to enqueue, one query each, in the caller's transaction."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_pgqueue import (
    EnqueueError,
    InvalidArgument,
    WrongDatabase,
    signals,
    task,
)
from django_pgqueue.models import Job
from django_pgqueue.postgres.bulk import BULK_ROWS_MAX
from django_pgqueue.tasks.result import JobResult
from tests.app.models import Order
from tests.app.tasks import add, noop

HOUR = timedelta(hours=1)
SOON = timedelta(seconds=10)

in_transaction = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)
two_databases = pytest.mark.django_db(databases=["default", "queue"], transaction=True)


def stored(result):
    return Job.objects.get(pk=result.id)


@contextmanager
def rolled_back(using="default"):
    """A transaction, or a savepoint inside one, that is rolled back at its end."""
    with transaction.atomic(using):
        yield
        transaction.set_rollback(True, using)


def payloads():
    return list(Job.objects.order_by("pk").values_list("args", "kwargs"))


# One job -----------------------------------------------------------------------------


def test_a_task_is_still_a_function():
    """Called inline: no job, no database."""
    assert 3 == add(1, right=2)


@in_transaction
@pytest.mark.parametrize(
    "store",
    [
        lambda: add.delay(1, right=2),
        lambda: add.enqueue(1, right=2),
        lambda: add.using().delay(1, right=2),
        lambda: add.using().enqueue(1, right=2),
        lambda: add.apply_async((1,), {"right": 2}),
    ],
    ids=["delay", "enqueue", "using.delay", "using.enqueue", "apply_async"],
)
def test_one_job_is_one_query(store):
    """In the caller's transaction; the wake comes after its commit."""
    with transaction.atomic(), CaptureQueriesContext(connection) as queries:
        result = store()

    assert 1 == len(queries)
    job = stored(result)
    assert isinstance(result, JobResult)
    assert ("tests.app.tasks.add", [1], {"right": 2}) == (
        job.task,
        job.args,
        job.kwargs,
    )
    assert (job.run_after, job.expires_at, job.headers) == (None, None, {})


@in_transaction
@pytest.mark.parametrize(
    "run_after, seconds",
    [(HOUR, 3600), (90, 90), (0.5, 0.5), ("10m", 600), ("1h", 3600), (0, 0)],
)
def test_a_duration_counts_from_the_clock_of_the_database(run_after, seconds):
    """However it is written; run_after keeps what was asked for."""
    job = stored(noop.using(run_after=run_after).delay())

    after = job.run_after - job.enqueued_at - timedelta(seconds=seconds)
    assert timedelta(0) <= abs(after) < SOON
    assert job.visible_at >= job.run_after


@in_transaction
def test_apply_async_speaks_celery():
    """countdown or eta, expires, queue, priority, headers."""
    at = datetime(2100, 1, 1, tzinfo=UTC)
    first = stored(
        noop.apply_async(
            [1],
            {"a": 2},
            countdown=3600,
            expires="2h",
            queue="mail",
            priority=7,
            headers={"a": 1},
            tags=["x"],
        )
    )
    second = stored(noop.apply_async(eta=at))

    assert ([1], {"a": 2}, "mail", 7, {"a": 1, "tags": ["x"]}) == (
        first.args,
        first.kwargs,
        first.queue,
        first.priority,
        first.headers,
    )
    assert abs(first.run_after - first.enqueued_at - HOUR) < SOON
    assert abs(first.expires_at - first.enqueued_at - 2 * HOUR) < SOON
    assert (at, [], {}) == (second.visible_at, second.args, second.kwargs)


# What is refused ---------------------------------------------------------------------


NAN = float("nan")

REFUSED = [
    (lambda: noop.delay([{"a": NAN}]), r"args\[0\]\[0\]\.a is nan"),
    (lambda: add.delay(1), "arguments do not fit: missing.*'right'"),
    (lambda: add.delay(1, 2, queue="x"), "keyword.*'queue'"),
    (lambda: noop.apply_async("ab"), "args is a str; it must be a l"),
    (lambda: noop.apply_async((), [1]), "kwargs is a list; it must"),
    (lambda: noop.using(tags=["a\n"]).delay(), "printable characters"),
    (lambda: noop.using(headers={"tags": []}).delay(), "'tags', which is reserved"),
    (lambda: noop.using(headers={"pgqueue.x": 1}).delay(), "reserved"),
    (lambda: noop.using(headers={"a": [NAN]}).delay(), r"headers\.a\[0\] is nan"),
    (lambda: noop.using(queue="a b").delay(), "queue='a b'"),
    (lambda: noop.using(priority=1000).delay(), "priority=1000"),
    (lambda: noop.using(retries=-1).delay(), "retries=-1"),
    (lambda: noop.using(run_after=-1).delay(), "run_after is -1"),
    (lambda: noop.using(expires="never").delay(), "expires is 'never'"),
    (
        lambda: noop.using(headers={"a": "x" * 2_000_000}).delay(),
        "headers take 2,000,008 bytes as JSON; the limit is 1,048,576",
    ),
    (lambda: noop.delay("x" * 2_000_000), "2,000,00. bytes"),
    (lambda: add.bulk([(1, 2), (1,)]), "item 1 arguments do not fit"),
    (lambda: noop.bulk([(), ("x" * 2_000_000,)]), "item 1: arguments take 2,000,00"),
    (lambda: noop.bulk([(1,), 5]), "item 1 is a int; it must be a d"),
    (lambda: noop.bulk([{1: 2}]), "item 0 kwargs has the key 1; JSON keys"),
]


@in_transaction
@pytest.mark.parametrize("call, message", REFUSED, ids=[text for _, text in REFUSED])
def test_a_refused_call_leaves_the_transaction_usable(call, message):
    """Nothing is sent to the database, so nothing there has failed."""
    with transaction.atomic():
        Order.objects.create(name="before")
        with (
            CaptureQueriesContext(connection) as queries,
            pytest.raises(EnqueueError, match=message),
        ):
            call()
        Order.objects.create(name="after")

    assert 0 == len(queries)
    assert 0 == Job.objects.count()
    assert 2 == Order.objects.count()


# Transactions ------------------------------------------------------------------------


@committed
def test_a_job_commits_with_the_data_it_is_about(cursor):
    """Until then nobody else sees it; rolled back, it was never there."""
    with transaction.atomic():
        noop.delay(1)
        cursor.execute("SELECT count(*) FROM pgqueue_job")
        assert (0,) == cursor.fetchone()
    assert [([1], {})] == payloads()

    with rolled_back():
        noop.delay(2)
    assert [([1], {})] == payloads()


@committed
def test_a_savepoint_takes_its_jobs_with_it():
    """And only its own."""
    with transaction.atomic():
        noop.delay(1)
        with rolled_back():
            noop.delay(2)
        noop.delay(3)

    assert [([1], {}), ([3], {})] == payloads()


# Bulk --------------------------------------------------------------------------------


@in_transaction
def test_bulk_stores_one_job_per_item_in_their_order():
    """Dicts are keyword arguments, lists and tuples positional ones."""
    results = add.using(queue="mail", priority=3).bulk(
        item for item in [{"left": 1, "right": 2}, (3, 4), [5, 6]]
    )

    assert [([], {"left": 1, "right": 2}), ([3, 4], {}), ([5, 6], {})] == payloads()
    rows = Job.objects.in_bulk([result.id for result in results])
    assert [r.id for r in results] == sorted(rows)
    assert {("mail", 3)} == {(row.queue, row.priority) for row in rows.values()}


@in_transaction
@pytest.mark.parametrize(
    "count, statements", [(1, 1), (BULK_ROWS_MAX, 1), (BULK_ROWS_MAX + 1, 2)]
)
def test_a_bulk_is_one_statement_per_five_thousand(count, statements):
    """In the caller's transaction there is nothing else."""
    with CaptureQueriesContext(connection) as queries:
        results = noop.bulk([n] for n in range(count))

    assert statements == len(queries)
    assert count == len(results) == Job.objects.count()
    assert [[0], [count - 1]] == [stored(results[n]).args for n in (0, -1)]
    assert 5_000 == BULK_ROWS_MAX


@committed
def test_a_bulk_is_all_or_nothing(cursor):
    """Also without a transaction of the caller's, when a later statement fails."""
    cursor.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE 'refused'; END $$;"
        "CREATE TRIGGER refuse BEFORE INSERT ON pgqueue_job FOR EACH ROW"
        " WHEN (NEW.args = '[5000]') EXECUTE FUNCTION refuse()"
    )
    try:
        with pytest.raises(Exception, match="refused"):
            noop.bulk([n] for n in range(BULK_ROWS_MAX + 1))
    finally:
        cursor.execute("DROP FUNCTION refuse CASCADE")

    assert 0 == Job.objects.count()
    assert not connection.in_atomic_block


# Another database --------------------------------------------------------------------


@pytest.fixture
def jobs_on_queue(settings):
    """Jobs are stored in the database "queue"."""
    settings.PGQUEUE = {"DATABASE": "queue"}


@pytest.mark.usefixtures("jobs_on_queue")
class TestAnotherDatabase:
    """Jobs that would not roll back with the open transaction."""

    @two_databases
    @pytest.mark.parametrize(
        "store",
        [noop.delay, lambda: noop.bulk([()]), lambda: noop.bulk([]), noop.apply_async],
        ids=["delay", "bulk", "empty bulk", "apply_async"],
    )
    def test_are_refused(self, store):
        """The error names both databases and the way out."""
        with (
            transaction.atomic(),
            CaptureQueriesContext(connections["queue"]) as queries,
            pytest.raises(WrongDatabase, match=r"noop\.on_commit\(\)\.") as caught,
        ):
            store()

        assert ("default", "queue") == (
            caught.value.open_alias,
            caught.value.queue_alias,
        )
        assert 0 == len(queries)

    @pytest.mark.django_db(databases=["default", "queue"])
    def test_are_stored_inside_a_plain_test_case(self):
        """The transactions of TestCase are none of the application's."""
        assert connections["default"].in_atomic_block
        noop.delay()
        noop.bulk([(), ()])

        assert 3 == Job.objects.using("queue").count()
        with transaction.atomic("default"), pytest.raises(WrongDatabase):
            noop.delay()

    @two_databases
    def test_are_stored_after_the_commit_that_was_asked_for(self):
        """By default that of the open transaction, which need not be the queue's."""
        with transaction.atomic("default"):
            assert noop.on_commit().delay(1) is None
            assert noop.using(queue="mail").on_commit().enqueue(2) is None
            assert 0 == Job.objects.count()

        assert ["default", "mail"] == list(
            Job.objects.order_by("pk").values_list("queue", flat=True)
        )

    @two_databases
    def test_are_never_stored_after_a_rollback(self):
        """Neither of the transaction nor of the savepoint."""
        with transaction.atomic("default"):
            noop.on_commit().delay(1)
            with rolled_back("default"):
                noop.on_commit().delay(2)
        assert [([1], {})] == payloads()

        with rolled_back("default"):
            noop.on_commit().delay(3)
        assert [([1], {})] == payloads()


@in_transaction
@pytest.mark.parametrize(
    "call",
    [
        lambda: add.on_commit().delay(1),
        lambda: noop.on_commit().delay(NAN),
        lambda: noop.using(headers={"a": NAN}).on_commit().delay(),
    ],
)
def test_on_commit_refuses_before_the_commit(call):
    """Afterwards it would be too late to roll back."""
    with pytest.raises(InvalidArgument):
        call()


# Transactions by hand ----------------------------------------------------------------


@committed
def test_a_transaction_by_hand_takes_its_jobs_with_it(cursor):
    """Commit and rollback are the caller's."""
    transaction.set_autocommit(False)
    try:
        noop.delay(1)
        transaction.rollback()
        noop.delay(2)
        transaction.commit()
    finally:
        transaction.set_autocommit(True)

    assert [([2], {})] == payloads()


# Async -------------------------------------------------------------------------------


@in_transaction
@pytest.mark.parametrize(
    "store",
    [
        lambda: add.adelay(1, right=2),
        lambda: add.aenqueue(1, right=2),
        lambda: add.using(queue="mail").adelay(1, right=2),
        lambda: add.using(queue="mail").aenqueue(1, right=2),
        lambda: add.abulk([(1, 2)]),
        lambda: add.using(queue="mail").abulk([(1, 2)]),
        lambda: add.on_commit().adelay(1, 2),
        lambda: add.on_commit().aenqueue(1, 2),
        lambda: add.on_commit().abulk([(1, 2)]),
    ],
)
def test_async_code_joins_djangos_transaction(
    store, django_capture_on_commit_callbacks
):
    """The twin runs in the thread that holds Django's connection."""

    async def call():
        return await store()

    with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
        async_to_sync(call)()
        transaction.on_commit(lambda: None)
    assert 1 == Job.objects.count()
    with rolled_back():
        async_to_sync(call)()

    assert 1 == Job.objects.count()


# Tags --------------------------------------------------------------------------------


@in_transaction
def test_tags_of_a_call_are_added_to_those_of_the_task(declared):
    """Once each, in their order; every way to enqueue stores them."""

    @task(name="tagged", tags=["a", "b"])
    def tagged():
        pass

    results = [
        tagged.delay(),
        tagged.using(tags=["c", "a"]).using(tags=["d"]).delay(),
        tagged.apply_async(tags=("e",), headers={"x": 1}),
        *tagged.using(tags={"f"}).bulk([()]),
    ]

    assert [
        {"tags": ["a", "b"]},
        {"tags": ["a", "b", "c", "d"]},
        {"x": 1, "tags": ["a", "b", "e"]},
        {"tags": ["a", "b", "f"]},
    ] == [stored(result).headers for result in results]


# Signals -----------------------------------------------------------------------------


@in_transaction
def test_every_enqueue_sends_a_signal_from_its_task():
    """Bulk sends one per job; a refused call sends none."""
    heard = []

    def receiver(sender, signal, **fields):
        heard.append((sender, fields))

    signals.job_enqueued.connect(receiver, sender=noop)
    try:
        result = noop.using(queue="mail").delay()
        results = noop.bulk([(), ()])
        add.delay(1, 2)
        with pytest.raises(InvalidArgument):
            noop.delay(NAN)
    finally:
        signals.job_enqueued.disconnect(receiver, sender=noop)

    assert [
        (noop, {"job_id": r.id, "task": noop.name, "queue": queue})
        for r, queue in [(result, "mail"), *((r, "default") for r in results)]
    ] == heard
