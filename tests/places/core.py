"""
The core: each kind of job, lane, message and schedule, through a worker to its end.

Whoever enqueues, and whoever works, is what the tests differ in.
"""

from __future__ import annotations

from typing import Any

import psycopg
from django.apps import apps
from django.contrib import admin
from django.db import transaction

from django_pgqueue import Unique, chord, publish
from tests.app import crash_tasks, lane_tasks, tasks, workflow_tasks
from tests.app.accumulate_tasks import by_size
from tests.harness.ledger import Ledger
from tests.harness.waiting import wait_for

MODULES = [
    "tasks",
    "crash_tasks",
    "lane_tasks",
    "accumulate_tasks",
    "schedule_tasks",
    "subscriber_tasks",
    "consume_tasks",
    "workflow_tasks",
]

STEPS = 5

LIVE = """
SELECT task, queue, visible_at FROM pgqueue_job WHERE task <> ALL (%s)
"""
ENDED = """
SELECT state, count(*)::int FROM pgqueue_archived_job WHERE task = %s GROUP BY state
"""
HEARD = "SELECT result FROM pgqueue_archived_job WHERE queue = %s"
WORKFLOWS = """
SELECT w.key, w.state, w.succeeded, s.result::int
  FROM pgqueue_workflow w JOIN pgqueue_step s ON s.id = w.ends[1]
"""
DEAD = "SELECT task, reason FROM pgqueue_dead_letter ORDER BY task"

# It goes on for ever.
EACH_SECOND = ["tests.app.schedule_tasks.tells_tick"]


def enqueue() -> None:
    """Enqueue one of each, as a web server does, before any worker has started."""
    tasks.noop.delay(1)
    tasks.noop.using(queue="mail", priority=5, run_after=0.2).delay(2)
    tasks.add.bulk([(1, 2), {"left": 3, "right": 4}])
    with transaction.atomic(using="queue"):
        tasks.noop.on_commit().delay(3)
    with transaction.atomic(using="queue"):
        tasks.noop.delay("never")
        transaction.set_rollback(True, using="queue")
    crash_tasks.record.bulk([{}] * 50)
    for _ in range(3):
        tasks.once.delay()
    for number in range(STEPS):
        lane_tasks.flaky_step.delay("c1", number)
        lane_tasks.paced.using(retries=0).delay("c2", number)
    lane_tasks.limited.bulk([{"tenant": "t", "number": n} for n in range(STEPS)])
    by_size.bulk([(n,) for n in range(10)])
    tasks.fails_once.delay("no luck")
    tasks.noop.using(unique=Unique(conflict="replace")).delay(4)
    header = [
        workflow_tasks.give.s(number) | workflow_tasks.add.s(1) for number in (1, 2)
    ]
    chord(header, workflow_tasks.total.s()).delay(key="order-7")
    publish("parcels.packed", {"n": 1})
    publish("plain", {"n": 1}, key="k")


def publish_more() -> int:
    """Publish while a worker runs, which has subscribed; return the message's id."""
    return publish("parcels.sent", {"n": 2, "country": "FR"}, key="c7")


def wait_until_none_waits(database: psycopg.Connection[Any]) -> None:
    """Wait until no job is left but ticks of the schedule."""
    wait_for(
        lambda: not database.execute(LIVE, [EACH_SECOND]).fetchall(),
        60,
        "all jobs have ended",
    )


def ends(database: psycopg.Connection[Any], the_ledger: Ledger, sent: int) -> None:
    """
    Wait until all of it has ended, and assert how.

    Args:
        database: Of somebody who may read, beside whoever works.
        the_ledger: Of the workers.
        sent: What publish_more() returned.
    """

    def heard(queue: str) -> list[Any]:
        return database.execute(HEARD, [queue]).fetchall()

    wait_for(lambda: len(heard("parcels")) == 2, what="the back-fill, and a message")
    wait_for(lambda: heard("watch"), what="a message that is asked for")
    wait_until_none_waits(database)
    wait_for(lambda: the_ledger.entries("done"), what="the group has read its message")
    wait_for(lambda: len(the_ledger.entries("tick")) >= 2, what="the schedule ticks")

    def ended(task: Any) -> dict[str, int]:
        return dict(database.execute(ENDED, [task.name]).fetchall())

    assert {"succeeded": 4} == ended(tasks.noop)
    assert {"succeeded": 2} == ended(tasks.add)
    workflows = database.execute(WORKFLOWS).fetchall()
    assert [("order-7", "succeeded", 5, 5)] == workflows
    assert {"succeeded": 50} == ended(crash_tasks.record)
    assert {"succeeded": 1} == ended(tasks.once)
    assert {"succeeded": STEPS} == ended(lane_tasks.flaky_step)
    assert {"succeeded": STEPS} == ended(lane_tasks.limited)
    assert {"succeeded": 10} == ended(by_size)
    ran = [entry.note for entry in the_ledger.entries("end") if entry.note]
    in_order = [note for note in ran if note[0] == "c1"]
    assert [["c1", number] for number in range(STEPS)] == in_order
    dead = database.execute(DEAD).fetchall()
    assert (tasks.fails_once.name, "exhausted") in dead
    assert {tasks.fails_once.name, lane_tasks.paced.name} >= {task for task, _ in dead}
    assert [([sent, "parcels", "c7"],)] == heard("watch")
    assert [] == the_ledger.entries("stale")


# Of rows that a test has made with these numbers.
ROWS = ["job/9000001", "archivedjob/9000002", "deadletter/9000003"]


def assert_pages_answer(client: Any) -> None:
    """Get the overview, every list, and the pages of three rows."""
    models = apps.get_app_config("pgqueue").get_models()
    lists = [m._meta.model_name for m in models if admin.site.is_registered(m)]
    assert 10 <= len(lists)
    for page in ["", *(f"{name}/" for name in lists), *(f"{r}/change/" for r in ROWS)]:
        assert 200 == client.get(f"/admin/pgqueue/{page}").status_code, page
