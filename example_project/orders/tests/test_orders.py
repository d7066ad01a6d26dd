"""Orders: each is carried out, or undone, whatever fails and whoever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlencode

from django.db import connection
from django.test import TestCase, TransactionTestCase, override_settings
from postoffice.models import EmailMessage

from django_pgqueue import WorkflowResult
from django_pgqueue.models import DeadLetter, Job, Worker
from django_pgqueue.tasks import operate
from django_pgqueue.testing import crash_once, drain
from orders.acceptance import accept_order
from orders.models import Order, Product, Reservation
from orders.stub_server import StubServer, listening_socket

MANAGE = Path(__file__).resolve().parents[2] / "manage.py"
PATIENCE_SECONDS = 60.0
STEPS = ["reserve", "charge", "ship", "notify"]


def product(stock: int = 5) -> Product:
    return Product.objects.create(name="Kettle", cents=1_500, stock=stock)


def state_of(order: Order) -> str:
    return WorkflowResult(order.saga or 0).status


def states(order: Order) -> dict[str, str]:
    steps = WorkflowResult(order.saga or 0).steps()
    return {step.name: step.state for step in steps if step.state != "not needed"}


class Orders(TestCase):
    """With a stub server of its own, and drain() for a worker."""

    def setUp(self) -> None:
        self.partners = self.serve()

    def serve(self, **how: Any) -> StubServer:
        server = self.enterContext(StubServer(listening_socket(), **how))
        self.enterContext(override_settings(PARTNERS_URL=server.url))
        return server

    def in_effect(self, kind: str) -> list[int]:
        """Return the orders that were charged, or shipped, and that is not undone."""
        made = self.partners.books.made.values()
        return sorted(
            each["order"]
            for each in made
            if each["kind"] == kind and not each["taken_back"]
        )

    def test_an_order_is_carried_out(self) -> None:
        """
        In four steps; the mail is one of the post office.
        """
        kettle = product(stock=5)
        order = accept_order(kettle, "ann@example.org")
        drain(retries=True)

        self.assertEqual("succeeded", state_of(order))
        self.assertEqual(dict.fromkeys(STEPS, "succeeded"), states(order))
        kettle.refresh_from_db()
        self.assertEqual(4, kettle.stock)
        self.assertEqual([order.pk], self.in_effect("charges"))
        self.assertEqual([order.pk], self.in_effect("shipments"))
        mail = EmailMessage.objects.get()
        self.assertEqual(["ann@example.org"], mail.to)
        self.assertEqual("Kettle is on its way: parcel shipment-2.", mail.body)

    def test_what_is_sold_out_is_not_charged(self) -> None:
        """
        The first step says no, so there is nothing to undo.
        """
        order = accept_order(product(stock=0), "ann@example.org")
        drain(retries=True)

        self.assertEqual("compensated", state_of(order))
        self.assertEqual({"reserve": "dead"}, states(order))
        self.assertEqual({}, self.partners.books.made)

    def test_a_parcel_that_nobody_takes_is_refunded(self) -> None:
        """
        The last one first: the money, then the piece.
        """
        self.partners.is_declined = lambda kind, key: kind == "shipments"  # type: ignore[method-assign]
        kettle = product(stock=5)
        order = accept_order(kettle, "ann@example.org")
        drain(retries=True)

        self.assertEqual("compensated", state_of(order))
        undone = {"release": "succeeded", "refund": "succeeded"}
        done = {"reserve": "succeeded", "charge": "succeeded", "ship": "dead"}
        self.assertEqual(done | undone, states(order))
        self.assertEqual([], self.in_effect("charges"))
        kettle.refresh_from_db()
        self.assertEqual(5, kettle.stock)
        self.assertFalse(Reservation.objects.exists())
        # The mail, and the call back of the parcel: nothing waits for ever.
        self.assertNotContains(self.client.get(f"/orders/{order.pk}/"), "waiting")

    def test_whatever_fails_each_order_is_done_or_undone(self) -> None:
        """
        Of all requests, two fifths fail; some are declined, and there is too little.
        """
        self.partners = self.serve(fails=0.4, declines=0.2, seed=7)
        kettle = product(stock=20)
        orders = [accept_order(kettle, f"c{n}@example.org") for n in range(30)]
        drain(retries=True)

        ends = {order.pk: state_of(order) for order in orders}
        self.assertEqual({"succeeded", "compensated"}, set(ends.values()))
        done = sorted(pk for pk, state in ends.items() if state == "succeeded")
        self.assertEqual(done, self.in_effect("charges"))
        self.assertEqual(done, self.in_effect("shipments"))
        held = Reservation.objects.order_by("pk").values_list("pk", flat=True)
        self.assertEqual(done, list(held))
        kettle.refresh_from_db()
        self.assertEqual(20 - len(done), kettle.stock)
        self.assertEqual(len(done), EmailMessage.objects.count())
        asked = [each["asked"] for each in self.partners.books.made.values()]
        self.assertGreater(max(asked), 1, "no answer was lost")

    def test_a_step_that_comes_again_counts_once(self) -> None:
        """
        The worker dies after the bank was asked: the same key, the same charge.
        """
        order = accept_order(product(), "ann@example.org")
        drain(max_jobs=1)
        crash_once(Job.objects.get().pk)
        drain(retries=True)

        self.assertEqual("succeeded", state_of(order))
        self.assertEqual([order.pk], self.in_effect("charges"))
        charge = self.partners.books.made["charge-1"]
        self.assertEqual(2, charge["asked"])

    def test_a_refund_that_the_bank_refuses_needs_a_human(self) -> None:
        """
        Until its dead letter is redriven, nothing else is undone.
        """
        self.partners.is_declined = lambda kind, key: kind == "shipments"  # type: ignore[method-assign]
        order = accept_order(product(stock=5), "ann@example.org")
        with mock.patch.object(self.partners.books, "take_back", return_value=False):
            drain(retries=True)
        self.assertEqual("compensating", state_of(order))
        self.assertEqual("dead", states(order)["refund"])
        self.assertTrue(Reservation.objects.exists())

        operate.retry([DeadLetter.objects.get().pk])
        drain(retries=True)
        self.assertEqual("compensated", state_of(order))
        self.assertFalse(Reservation.objects.exists())

    def test_the_pages_show_it(self) -> None:
        """
        A button places an order; its page renews itself until the saga is over.
        """
        kettle = product()
        posted = {"product": kettle.pk, "email": "ann@example.org"}
        page = self.client.post("/orders/place/", posted, follow=True)
        self.assertContains(page, 'class="status running"')
        self.assertContains(page, 'http-equiv="refresh"')
        drain(retries=True)
        page = self.client.get(f"/orders/{Order.objects.get().pk}/")
        self.assertContains(page, 'class="status succeeded"', count=5)
        self.assertNotContains(page, 'http-equiv="refresh"')
        page = self.client.get("/orders/")
        self.assertContains(page, "Place order")
        self.assertContains(page, 'class="status succeeded"', count=1)

    def test_an_order_of_nothing_is_refused(self) -> None:
        """
        Before anything is stored.
        """
        kettle = product()
        for posted, status in [
            ({"product": kettle.pk, "email": "ann"}, 400),
            ({"product": kettle.pk, "email": "änn@example.org"}, 400),
            ({"product": "x", "email": "ann@example.org"}, 400),
            ({"product": 10**17, "email": "ann@example.org"}, 404),
        ]:
            with self.subTest(posted):
                answer = self.client.post("/orders/place/", posted)
                self.assertEqual(status, answer.status_code)
        self.assertFalse(Order.objects.exists())


class RealWorker(TransactionTestCase):
    """With a worker of its own, that is a process and can be killed."""

    def start_worker(self, url: str) -> None:
        params = connection.get_connection_params()
        known = ("host", "port", "user", "password")
        options = urlencode({name: params[name] for name in known if name in params})
        worker = subprocess.Popen(
            [sys.executable, str(MANAGE), "pgqueue_worker", "--processes", "1"],
            env=os.environ
            | {
                "DATABASE_URL": f"postgres:///{params['dbname']}?{options}",
                "EMAIL_URL": "dummymail://",
                "PARTNERS_URL": url,
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.addCleanup(worker.wait)
        self.addCleanup(os.killpg, worker.pid, signal.SIGKILL)

    def wait_for(self, order: Order, *ends: str) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while state_of(order) not in ends:
            self.assertLess(time.monotonic(), until, states(order))
            time.sleep(0.05)

    def order_and_kill(self, partners: StubServer, *, path: str, task: str) -> Order:
        """Kill who asks for *path* before it is answered; return the order's end."""
        reached, killed = threading.Event(), threading.Event()

        def hold(asked: str) -> None:
            if asked == path and not killed.is_set():
                reached.set()
                killed.wait(PATIENCE_SECONDS)

        partners.before_answer = hold
        order = accept_order(product(), "ann@example.org")
        self.start_worker(partners.url)
        self.assertTrue(reached.wait(PATIENCE_SECONDS))
        holder = Job.objects.running().get(task=task).leased_by
        os.kill(Worker.objects.get(name=holder).pid, signal.SIGKILL)
        killed.set()
        self.wait_for(order, "succeeded", "compensated")
        return order

    def test_a_worker_is_killed_while_the_bank_answers(self) -> None:
        """
        The card is charged, and who asked for it is dead: the next attempt hears of the
        same charge, and the order goes on.
        """
        with StubServer(listening_socket()) as partners:
            order = self.order_and_kill(
                partners, path="/charges", task="orders.saga.charge"
            )
        self.assertEqual("succeeded", state_of(order))
        kinds = Counter(each["kind"] for each in partners.books.made.values())
        self.assertEqual({"charges": 1, "shipments": 1}, kinds)
        self.assertEqual(2, partners.books.made["charge-1"]["asked"])
        self.assertEqual(1, EmailMessage.objects.count())

    def test_a_worker_is_killed_while_the_bank_refunds(self) -> None:
        """
        The next attempt finds it refunded, and the undoing goes on.
        """
        with StubServer(listening_socket()) as partners:
            partners.is_declined = lambda kind, key: kind == "shipments"  # type: ignore[method-assign]
            order = self.order_and_kill(
                partners, path="/charges/charge-1", task="orders.saga.refund"
            )
        self.assertEqual("compensated", state_of(order))
        self.assertEqual("succeeded", states(order)["refund"])
        self.assertTrue(partners.books.made["charge-1"]["taken_back"])
        self.assertEqual(5, Product.objects.get(name="Kettle").stock)
        self.assertFalse(EmailMessage.objects.exists())
