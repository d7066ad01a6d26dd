"""Captures: what the triggers publish of rows that were written, whoever wrote them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

import pytest
from django.db import connection

from django_pgqueue.log.captures import ACTS, Capture, replace
from tests.app.models import EveryField, Order
from tests.harness.captures import capture, captures, published
from tests.harness.waiting import wait_for

__all__ = ["captures"]

BLOCKED = """
SELECT count(*)::integer FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event_type = 'Lock'
"""

pytestmark = pytest.mark.django_db


def execute(statement: str, *params: Any) -> None:
    """Run SQL that no ORM has written."""
    with connection.cursor() as cursor:
        cursor.execute(statement, params or None)


def changes() -> list[tuple[Any, ...]]:
    """Return of each message the last word of its name, its key, and both rows."""
    return [
        (name.rpartition(".")[2], key, payload["old"], payload["new"])
        for name, key, payload, _ in published()
    ]


def attach(table: str, **said: Any) -> None:
    """Capture a table that no model has."""
    made = Capture(
        name=table,
        on=ACTS,
        columns=None,
        without=(),
        when=None,
        wakes="on_commit",
        bytes_max=1_048_576,
    )
    with connection.schema_editor() as editor:
        replace(editor, table, table, before=(), capture=changed(made, **said))


def test_each_row_is_told_whoever_writes_it():
    """Of a model's own save, a bulk update, raw SQL and a delete."""
    capture("testapp.Order", topic="orders.changes", fields=["name"])
    orders = Order.objects.bulk_create([Order(name="a"), Order(name="b")])
    first, second = (str(order.pk) for order in orders)
    Order.objects.update(name="c")
    execute("UPDATE testapp_order SET name = 'd' WHERE id = %s", first)
    execute("UPDATE testapp_order SET receipt = 7")  # It is not captured.
    execute("UPDATE testapp_order SET name = name")
    orders[1].delete()

    assert [
        ("orders.changes.insert", first, None, {"name": "a"}, ["name"]),
        ("orders.changes.insert", second, None, {"name": "b"}, ["name"]),
        ("orders.changes.update", first, {"name": "a"}, {"name": "c"}, ["name"]),
        ("orders.changes.update", second, {"name": "b"}, {"name": "c"}, ["name"]),
        ("orders.changes.update", first, {"name": "c"}, {"name": "d"}, ["name"]),
        ("orders.changes.delete", second, {"name": "c"}, None, ["name"]),
    ] == [
        (name, key, payload["old"], payload["new"], payload["changed"])
        for name, key, payload, _ in published()
    ]
    _, _, payload, headers = published()[0]
    assert ("testapp_order", int(first), {}) == (
        payload["table"],
        payload["pk"],
        headers,
    )


def test_what_else_writes_rows_is_told():
    """ON CONFLICT, COPY, two in one WITH; of a row that a trigger changes, the last."""
    capture("testapp.Order", fields=["name"])
    execute(
        """CREATE FUNCTION pg_temp.shout() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN NEW.name := upper(NEW.name); RETURN NEW; END $$;
           CREATE TRIGGER shouts BEFORE INSERT OR UPDATE ON testapp_order
           FOR EACH ROW EXECUTE FUNCTION pg_temp.shout()"""
    )
    execute(
        """INSERT INTO testapp_order (id, name) VALUES (1, 'a');
           INSERT INTO testapp_order (id, name) VALUES (1, 'b'), (2, 'c')
           ON CONFLICT (id) DO UPDATE SET name = excluded.name"""
    )
    copying = "COPY testapp_order (id, name) FROM STDIN"
    with connection.cursor() as cursor, cursor.copy(copying) as copy:
        copy.write("3\td\n")
    execute(
        """WITH gone AS (DELETE FROM testapp_order WHERE id = 3 RETURNING id)
           UPDATE testapp_order SET name = 'e' FROM gone WHERE testapp_order.id = 2"""
    )

    told = changes()
    assert [
        ("insert", "1", None, {"name": "A"}),
        ("update", "1", {"name": "A"}, {"name": "B"}),
        ("insert", "2", None, {"name": "C"}),
        ("insert", "3", None, {"name": "D"}),
    ] == told[:4]
    assert ("delete", "3", {"name": "D"}, None) in told[4:]
    assert ("update", "2", {"name": "C"}, {"name": "E"}) in told[4:]
    assert 6 == len(told)


def test_a_large_row_is_written_and_its_large_values_are_left_out():
    """By name: the write does not fail, and the message is within the limit."""
    attach("testapp_everyfield", columns=("char", "text"), bytes_max=2_000)
    EveryField.objects.create(char="é" * 60, text="x" * 5_000)
    EveryField.objects.update(text="y")

    (_, _, first, _), (_, _, second, _) = published()
    assert {"char": "é" * 60} == first["new"]
    assert (None, ["text"]) == (first["old"], first["left_out"])
    assert ["char", "text"] == first["changed"]
    assert ({"char": "é" * 60}, ["text"]) == (second["new"], second["changed"])


@pytest.mark.django_db(transaction=True)
def test_changes_of_a_row_are_told_in_their_order(
    captures: None, new_cursor: Callable[..., Any], in_thread: Callable[..., Any]
):
    """Two who write one row wait for one another; who is cut off has told nothing."""
    attach("testapp_order", columns=("name",))
    first, second, third, looks = (new_cursor() for _ in range(4))
    first.execute("INSERT INTO testapp_order (id, name) VALUES (1, 'a')")
    update = "UPDATE testapp_order SET name = name || %s"
    third.execute("BEGIN")
    third.execute(update, ["lost"])
    first_writes = in_thread(first.execute, update, ["b"])
    wait_until_blocked(looks, 1)
    looks.execute(
        "SELECT pg_terminate_backend(%s)", [third.connection.info.backend_pid]
    )
    first_writes.join()
    first.execute("BEGIN")
    first.execute(update, ["c"])
    second_writes = in_thread(second.execute, update, ["d"])
    wait_until_blocked(looks, 1)
    first.execute("COMMIT")
    second_writes.join()

    assert [
        ("insert", "1", None, {"name": "a"}),
        ("update", "1", {"name": "a"}, {"name": "ab"}),
        ("update", "1", {"name": "ab"}, {"name": "abc"}),
        ("update", "1", {"name": "abc"}, {"name": "abcd"}),
    ] == changes()


def wait_until_blocked(cursor: Any, count: int) -> None:
    """Wait until so many sessions wait for a lock."""
    wait_for(
        lambda: cursor.execute(BLOCKED).fetchone() == (count,), what="a blocked session"
    )
