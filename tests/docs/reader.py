"""
What the reader of a page has already, and does between its samples.

Python, by page: ``HAS`` runs before the first sample, ``THEN`` after the last one, and
``MEANWHILE`` before the sample that contains a text. It runs in the module of the page,
which has nothing else but the public names of the package, ``transaction`` and
``models``, and the models of shop.py where the page names them: a name that nobody has
given is an error, as it is for the reader.

Besides, it may use ``the``: what migrate, workers and other systems do.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from django.db import connection, models, transaction

import django_pgqueue
from django_pgqueue import testing
from django_pgqueue.apps import _declare
from django_pgqueue.log import backfill
from django_pgqueue.log.closed_days import closed_days
from django_pgqueue.log.seek import seek
from django_pgqueue.models import Job
from django_pgqueue.schedules import operate as schedules
from django_pgqueue.tasks import operate

# What every page may take for granted.
GRANTED = {
    **{name: getattr(django_pgqueue, name) for name in django_pgqueue.__all__},
    "models": models,
    "transaction": transaction,
}

HAS = {
    "README.md": "order = Order(number='2026-18', customer=Customer.objects.create())",
    "docs/index.md": "order = Order(number='2026-18')",
    "docs/explanation/delivery-guarantees.md": "bank = the.Bank()",
    "docs/howto/accumulate-calls.md": """
index = the.Index()
bank = the.Bank()
shop = Shop.objects.create()
product = Product(shop=shop)
products = [Product.objects.create(shop=shop), Product.objects.create(shop=shop)]

@task
def charge_alone(order_id): bank.charge(order_id, idempotency_key="alone")
""",
    "docs/howto/wait-for-results.md": """
class model:
    generate = staticmethod(lambda prompt: ["To", " be", " or"])
""",
    "docs/howto/when-producers-are-faster.md": """
customer = Customer.objects.create()
""",
    "docs/howto/keep-a-contract.md": """
from pathlib import Path
BASE_DIR = Path("/shop")
""",
    "docs/howto/one-at-a-time.md": """
order = Order(number="2026-19", customer=Customer.objects.create(pk=7))
""",
    "docs/howto/run-once.md": """
import random, time
shop = Shop.objects.create()
path = "products.csv"
said = []
messages = the.Messages(said)
request = object()

@task
def import_file(path): ...

import_file.using(unique=Unique(by="path")).delay(path)

def save_and_enqueue(): Order.objects.create(number=f"tried {attempt}")
""",
    "docs/howto/publish-later.md": """
order = Order(number="2026-20")
Customer.objects.bulk_create([Customer(), Customer()])
""",
    "docs/howto/take-messages-from-outside.md": """
from shop.models import Order
event = {"id": "evt_2", "order": Order.objects.create(number="2026-21").pk}

def verified(request): return {**event, "id": "evt_1"}

@task
def send_receipt(order_id): ...
""",
    "docs/howto/send-email.md": """
import smtplib
from django.core.mail import EmailMessage
""",
    "docs/howto/send-each-event-to-several-parts.md": "from shop.models import Order",
    "docs/howto/spread-work-over-a-day.md": """
customers = Customer.objects.bulk_create([Customer(), Customer(active=False)])

@task
def on_customer_job(customer_id): ...
""",
    "docs/howto/use-the-admin.md": """
from django.contrib.admin import AdminSite
operations = AdminSite("operations")
""",
    "docs/reference/api.md": """
from contextlib import nullcontext as tenant
customers = Customer.objects.bulk_create([Customer(), Customer(active=False)])
Order.objects.create(customer=customers[0])
user = customers[0]
pk = 9

@task
def refresh(customer_id): ...

@task
def remind(order_id, email="", lang=""): ...

@task
def count_words(text): return len(text.split())

@task
def digest(user_id): ...
""",
    "docs/explanation/sagas.md": """
done = []
def reserve(order_id): done.append("reserve")
def charge(order_id): raise ValueError("declined")
def release(stock): done.append("release")
""",
    "docs/howto/put-steps-in-order.md": """
ran = []
said = {"state": "open", "cents": 20_000}

@task
def charge(order_id): return said

@task
def ship(order_id): ran.append("ship")

@task
def call_back(order_id): ran.append("call back")

@task
def close(order_id): ran.append("close")

@task
def take_stock(): ran.append("take stock")

@task
def check_prices(): ran.append("check prices")

@task
def count(shop): return shop * 10

@task
def send_report(figures): ran.append(figures)

@task
def tell(failure): ...
""",
    "docs/tutorial/every-night.md": "from shop.models import Order",
    "docs/tutorial/publish-and-subscribe.md": """
from shop.receipts import write_receipt
""",
}

# Modules of other people or of the reader, that a page imports.
MODULES = {
    "docs/howto/async-tasks.md": {
        "httpx": """
class AsyncClient:
    async def __aenter__(self): return self
    async def __aexit__(self, *error): ...
    async def post(self, url, *, json):
        posted.append((url, json))
        return self
    def raise_for_status(self): ...
    status_code = 201

posted = []
""",
    },
    "docs/tutorial/publish-and-subscribe.md": {
        "shop.receipts": "def write_receipt(order_id): return f'{order_id}.txt'",
    },
    "docs/tutorial/first-task.md": {
        "config.settings": """
from pathlib import Path
from django.conf import settings
BASE_DIR = Path(settings.BASE_DIR)
""",
    },
}

MEANWHILE = {
    "docs/howto/replay-a-log.md": {
        "replay = topic": "the.deploy(); publish('orders.paid', {'id': 1})",
    },
    "docs/reference/consumer-groups.md": {
        "stats.create": "def send(payload): Visit.objects.create(path='sent')"
    },
    "docs/howto/run-once.md": {
        'result = reindex.delay(9, ["price"])': 'reindex.delay(9, ["name"])'
    },
    "docs/howto/wait-for-results.md": {
        "words = result.get(": "the.drain()",
        "in as_completed(": "the.drain()",
        "in result.stream(": "the.drain()",
    },
    "docs/reference/api.md": {"in as_completed(": "for each in results: each.cancel()"},
    "docs/tutorial/an-order-in-four-steps.md": {
        ">>> saga.refresh().status\n'succeeded'": "the.drain()",
        ">>> saga.refresh().status\n'compensated'": "the.drain(retries=True)",
        ">>> saga.refresh().status\n'compensating'": "the.fail()",
    },
    "docs/tutorial/first-task.md": {
        ">>> result.status, result.result": "the.drain()",
        ">>> result = write_receipt.delay(1)": """
(settings.BASE_DIR / "receipts").rename(settings.BASE_DIR / "receipts.old")
""",
        ">>> result.status\n": "the.fail()",
        ">>> result.refresh().status, result.reason": "the.drain(retries=True)",
        ">>> result.refresh().status, result.attempt": """
(settings.BASE_DIR / "receipts.old").rename(settings.BASE_DIR / "receipts")
assert [result.id] == list(the.redrive([result.id]))
the.drain()
""",
    },
    "docs/tutorial/publish-and-subscribe.md": {
        '>>> Order.sell("Ann", "FR")': "the.deploy()",
        '>>> Order.sell("Chloe", "FR")': """
from django.db import transaction
the.deploy()
the.fill()
the.drain()
""",
        ">>> for job in ArchivedJob": "the.drain()",
        ">>> Total.objects.values_list": """
the.deploy()
the.drain_group(add_up)
""",
        "('orders.checked', 2)": """
the.rewind("orders", "totals")
the.drain_group(add_up)
the.tick("orders.checked")
the.tick("orders.checked")
the.drain_group(add_up)
""",
    },
}

THEN = {
    "README.md": """
assert ["shop.tasks.send_receipt", "pgqueue.pull"] == the.waiting()
the.deploy()
orders.publish("orders.paid", {"id": 1})
assert "shop.tasks.thank" in the.waiting()
assert 2 == the.drain_group(count)
""",
    "docs/explanation/delivery-guarantees.md": """
charge.delay(7)
the.drain()
assert {7} == set(bank.charged)
""",
    "docs/explanation/sagas.md": """
result = order.start(order_id=1)
safe_order.start(order_id=1)
the.drain()
assert "succeeded" == result.status, result.status
""",
    "docs/howto/accumulate-calls.md": """
import unittest
the.drain()
test_products_are_indexed_together(unittest.TestCase())
assert set(products) <= index.updated
bulk_charge.delay(7)
bulk_charge.delay(13)
the.drain()
assert {7, 13} == set(bank.charged)
""",
    "docs/howto/async-tasks.md": """
import asyncio, httpx
order = Order.objects.create()
assert 201 == asyncio.run(send_webhook("https://a.example", {"id": 1}))
assert [("https://a.example", {"id": 1})] == httpx.posted
settle_order.delay(order.pk)
the.drain()
order.refresh_from_db()
assert order.paid
""",
    "docs/howto/put-steps-in-order.md": """
process("https://example.org/a.png")
the.drain()
ran.clear()
sell(7)
the.drain()
assert ["call back", "close"] == sorted(ran), ran
report([1, 2])
the.drain()
""",
    "docs/howto/run-once.md": """
assert [f"It is being imported already: job {the.jobs('import_file')[0].id}."] == said
assert 1 == Order.objects.count()
assert "replaced" == result.conflict
""",
    "docs/howto/send-each-event-to-several-parts.md": """
the.deploy()
pay(Order())
assert ["count", "tell_customer", "write_invoice"] == sorted(
    name.rpartition(".")[2] for name in the.waiting()
)
""",
    "docs/howto/take-messages-from-outside.md": """
assert ["shop.tasks.send_receipt"] == the.waiting()
for _ in range(2):
    assert 204 == webhook(None).status_code
    take.delay(0, 7, {"number": "2026-22"})
    the.drain()
assert 1 == Order.objects.filter(number="2026-22").count()
assert 1 == Order.objects.filter(paid=True).count()
""",
    "docs/howto/wait-for-results.md": """
assert (6, 10) == (words, total)
job = import_rows.delay(["1", "two"])
the.drain()
told = state(None, job.id).content.decode()
assert '"status": "succeeded"' in told
assert '"done": 2' in told
assert "row 2 is no number: two" in told
assert "To be or" == result.get()
""",
    "docs/reference/api.md": """
the.deploy()
the.tick("shop.tasks.nightly")
the.tick("shop.tasks.poll")
import_orders.using(headers={"tenant": "a"}).delay(1)
bill(7)
assert 2 <= len(the.jobs("bulk_index"))
assert 3 == len(the.jobs("refresh"))
assert 2 == len(the.jobs("remind"))
the.drain()
""",
    "docs/reference/consumer-groups.md": """
topic("clicks").publish({"path": "/a"})
the.drain_group(count)
topic("clicks").publish({"path": "/c"})
the.drain_group(count)
the.drain_group(forward)
assert {"/a", "/c", "sent"} == {*Visit.objects.values_list("path", flat=True)}
""",
    "docs/reference/events.md": """
@task(retries=0)
def gives_up(): fails

gives_up.delay()
the.fail()
""",
    "docs/reference/schedules.md": """
the.deploy()
the.tick("shop.tasks.nightly")
the.tick("shop.tasks.poll")
the.tick("cronjobs.nightly")
the.drain()
""",
    "docs/tutorial/every-night.md": """
the.deploy()
the.tick("shop.tasks.count_orders")
the.tick("count often")
the.drain()
""",
}


class Bank:
    """Remembers whom it has charged; refuses thirteen of many at once."""

    def __init__(self) -> None:
        self.charged: dict[int, str] = {}

    def charge(self, order_id: int, *, idempotency_key: str) -> None:
        self.charged[order_id] = idempotency_key

    def charge_all(self, orders: dict[int, int]) -> set[int]:
        taken = {order: str(key) for key, order in orders.items() if order != 13}
        self.charged |= taken
        return {key for key, order in orders.items() if order == 13}


class Index:
    """Remembers what it has been given."""

    def __init__(self) -> None:
        self.updated: set[Any] = set()

    def update(self, products: Any) -> None:
        self.updated |= set(products)


class Messages:
    """In the manner of django.contrib.messages."""

    def __init__(self, said: list[str]) -> None:
        self.said = said

    def warning(self, request: Any, text: str) -> None:
        self.said.append(text)


def deploy() -> None:
    """Do what the end of migrate does."""
    _declare(using="default", verbosity=0)


def fill() -> None:
    """Do what the leader does for subscriptions that begin with older messages."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(max(id), 0) FROM pgqueue_message")
        (last,) = cursor.fetchone()
        for each in backfill.find_open(cursor):
            backfill.fill(
                cursor, each, bound=last, final=last, days=closed_days(cursor)
            )


def tick(name: str) -> None:
    """Let a schedule be due."""
    assert schedules.run_now(name) is not None, name


def rewind(topic: str, group: str) -> None:
    """Do what ``pgqueue seek --to earliest`` does."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT g.id FROM pgqueue_consumer_group g "
            "JOIN pgqueue_topic t ON t.id = g.topic_id "
            "WHERE t.name = %s AND g.name = %s",
            [topic, group],
        )
        seek(cursor, cursor.fetchone()[0], "earliest")


def waiting() -> list[str]:
    """Return the tasks of the jobs that wait."""
    return list(Job.objects.order_by("id").values_list("task", flat=True))


def jobs(name: str) -> list[Job]:
    """Return the jobs of a task that wait."""
    return list(Job.objects.filter(task=f"shop.tasks.{name}"))


def drain(*, retries: bool = False) -> None:
    """Run what is due, and what that enqueues; with *retries*, all may fail."""
    testing.drain(retries=retries, raise_errors=not retries)


def fail() -> None:
    """Run what is due, once."""
    assert {"retrying", "dead"} & set(testing.drain().statuses)


the = SimpleNamespace(
    Bank=Bank,
    Index=Index,
    Messages=Messages,
    deploy=deploy,
    drain=drain,
    drain_group=testing.drain_group,
    fail=fail,
    fill=fill,
    jobs=jobs,
    redrive=operate.redrive,
    rewind=rewind,
    tick=tick,
    waiting=waiting,
)
