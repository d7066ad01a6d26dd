"""CaptureChanges(): a migration's operation, its reverse, and what it refuses."""

from __future__ import annotations

import pytest
from django.db import connection
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.writer import OperationWriter

from django_pgqueue import DeclarationError
from django_pgqueue.log.captures import find_all
from django_pgqueue.operations import CaptureChanges
from tests.app.models import Order
from tests.harness.captures import capture, migrate, published


def captured_on() -> list[list[str]]:
    """Return what is captured of each table."""
    with connection.cursor() as cursor:
        return [sorted(each.fires_on) for each in find_all(cursor)]


@pytest.mark.django_db
def test_a_capture_is_taken_back():
    """To none, or to what an earlier operation has said; and on=() ends it, too."""
    first = CaptureChanges("testapp.Order", topic="orders.changes", on=["insert"])
    second = CaptureChanges("testapp.Order", topic="orders.changes", on=["delete"])
    third = CaptureChanges("testapp.Order", topic="orders.changes", on=())
    states = migrate(first, second, third)

    assert [] == captured_on()
    with connection.schema_editor() as editor:
        third.database_backwards("testapp", editor, states[3], states[2])
    assert [["delete"]] == captured_on()
    with connection.schema_editor() as editor:
        second.database_backwards("testapp", editor, states[2], states[1])
    assert [["insert"]] == captured_on()
    with connection.schema_editor() as editor:
        first.database_backwards("testapp", editor, states[1], states[0])
    assert [] == captured_on()
    Order.objects.create()
    assert [] == published()


@pytest.mark.django_db
def test_secret_columns_are_left_out_unless_they_are_named():
    """By their names, of which PGQUEUE['REDACT'] has some by default."""
    capture("auth.User")
    capture("auth.User", topic="named", fields=["password"])
    with connection.cursor() as cursor:
        every, named = (each.captured_columns for each in find_all(cursor))

    assert "password" not in every
    assert "username" in every
    assert ["password"] == named


def test_a_migration_writes_it_down_and_makemigrations_sees_no_change():
    """What stands in a file makes the same operation again."""
    operation = CaptureChanges(
        "testapp.Order", on=["update"], fields=["name"], when="true", wakes="now"
    )
    text, _ = OperationWriter(operation, indentation=0).serialize()
    again = eval(  # noqa: S307  # As a migration's file is.
        text.strip().removesuffix(","),
        {"django_pgqueue": __import__("django_pgqueue.operations")},
    )

    assert operation.deconstruct() == again.deconstruct()
    assert "Capture changes of testapp.Order for testapp.order" == again.describe()
    state = migrate.state()
    after = state.clone()
    operation.state_forwards("testapp", after)
    changes = MigrationAutodetector(after, state)._detect_changes()
    assert {} == changes
    # The state can be rendered, though Django knows no such option.
    assert after.apps.get_model("testapp.Order")


@pytest.mark.parametrize(
    "said, message",
    [
        ({"model": "Order"}, "name the model as 'shop.Order'"),
        ({"model": "pgqueue.Job"}, "their changes cannot be"),
        ({"topic": "t" * 41}, "has 41 characters; the limit is 40"),
        ({"on": ["truncate"]}, "a list of 'insert', 'update', 'delete'"),
        ({"on": "insert"}, "a list of 'insert', 'update', 'delete'"),
        ({"fields": []}, "a list of names of fields"),
        ({"fields": "name"}, "a list of names of fields"),
        ({"when": " "}, "write SQL about the rows old and new"),
        ({"wakes": "soon"}, "one of 'on_commit', 'now'"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_said(said, message):
    """Before any SQL is sent."""
    with pytest.raises(DeclarationError, match=message):
        CaptureChanges(said.pop("model", "testapp.Order"), **said)


@pytest.mark.parametrize(
    "model, fields, message",
    [
        ("testapp.None", None, "no migration before this one makes testapp.None"),
        ("testapp.Order", ["nome"], "no field 'nome' of its own; it has id, name"),
        ("auth.User", ["groups"], "'groups' is in a table of its own"),
    ],
)
def test_a_field_that_is_not_there_is_refused(model, fields, message):
    """By the state of migrations, so by makemigrations, too."""
    with pytest.raises(DeclarationError, match=message):
        CaptureChanges(model, fields=fields).state_forwards("testapp", migrate.state())


@pytest.mark.django_db
def test_the_condition_is_tried_by_the_migration():
    """And not by the first write of a row."""
    with pytest.raises(Exception, match=r"column new\.nome does not exist"):
        capture("testapp.Order", when="new.nome = 'x'")


@pytest.mark.django_db(databases=["default", "queue"])
def test_rows_of_another_database_are_refused(settings):
    """Their messages would not commit with them; a copy of the table is left alone."""
    settings.PGQUEUE = {"DATABASE": "queue"}
    with pytest.raises(DeclarationError, match="in the database 'default', and mess"):
        capture("testapp.Order")
    settings.PGQUEUE = {}
    capture("testapp.Order", using="queue")
    assert [] == captured_on()
