"""Bulk: items that are written together are what delay() makes of each."""

from __future__ import annotations

import uuid

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_pgqueue import InvalidArgument, PayloadTooLarge, PgQueueError
from django_pgqueue.models import Job
from django_pgqueue.tasks.enqueuer import ITEMS_TOGETHER
from tests.app.tasks import add, fails, make_order, noop
from tests.tasks.test_plain import ODD, SCALARS

pytestmark = pytest.mark.django_db

LEAVES = SCALARS | ODD
VALUES = LEAVES | st.lists(LEAVES, max_size=2)
ITEMS = (
    st.dictionaries(st.sampled_from(["left", "right", "wrong"]), LEAVES, max_size=3)
    | st.fixed_dictionaries({"left": VALUES, "right": VALUES})
    | st.lists(LEAVES, max_size=3)
    | st.tuples(VALUES, VALUES)
    | st.none()
)


def rows():
    """Return the arguments of all jobs in their order, and forget them."""
    found = list(
        Job.objects.order_by("pk").values_list("task", "queue", "args", "kwargs")
    )
    Job.objects.all().delete()
    return found


def one_by_one(task, items):
    """Return the rows that delay() makes, or the error of the first that has one."""
    try:
        for item in items:
            if isinstance(item, dict):
                task.apply_async(kwargs=item)
            else:
                task.apply_async(args=item)
    except PgQueueError as error:
        rows()
        return type(error)
    return rows()


def together(task, items):
    """Return the rows that bulk() makes of them, or its error."""
    try:
        task.bulk(items)
    except PgQueueError as error:
        assert 0 == Job.objects.count()
        return type(error)
    return rows()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ITEMS, max_size=4))
def test_a_bulk_is_as_many_delays(items):
    """The same rows or the same error, from a list and from a generator."""
    expected = one_by_one(add, items)

    assert expected == together(add, items)
    assert expected == together(add, (item for item in items))


def test_a_generator_may_yield_one_dict_again_and_again():
    """What is stored is what was in it when it was yielded."""

    def items():
        item = {}
        for n in range(3):
            item.update(left=n, right=n)
            yield item

    add.bulk(items())

    assert [0, 1, 2] == [kwargs["left"] for *_, kwargs in rows()]


def test_a_list_may_hold_one_dict_again_and_again():
    """It is three jobs."""
    add.bulk([{"left": 1, "right": 2}] * 3)

    assert 3 == Job.objects.count()


@pytest.mark.parametrize("place", [0, ITEMS_TOGETHER - 1, ITEMS_TOGETHER, 612])
@pytest.mark.parametrize(
    "wrong, problem",
    [
        ({"left": 1}, "missing a required argument: 'right'"),
        ({"left": 1, "right": {1}}, "kwargs.right is a builtins.set"),
        ({"left": 1, "right": "\x00"}, "kwargs.right holds a NUL"),
        ([1, 2, 3], "too many positional arguments"),
        ("ab", "is a str; it must be a dict"),
    ],
)
def test_an_error_names_the_item(place, wrong, problem):
    """Wherever it stands among those that are written together."""
    items = [{"left": n, "right": n} for n in range(700)]
    items[place] = wrong

    with (
        CaptureQueriesContext(connection) as queries,
        pytest.raises(InvalidArgument, match=rf"item {place} .*{problem}"),
    ):
        add.bulk(items)

    assert 0 == len(queries)


def test_the_limit_is_of_one_item_and_not_of_all(settings):
    """The items together take more than one of them may."""
    settings.PGQUEUE = {"PAYLOAD_BYTES_MAX": 200}
    items = [["ü" * 97]] * 600

    make_order.bulk(items)
    assert 600 == Job.objects.count()

    with pytest.raises(PayloadTooLarge, match=r"item 300.* 202 .*200"):
        make_order.bulk([*items[:300], ["ü" * 98], *items])
    assert 600 == Job.objects.count()


@pytest.mark.parametrize("bytes_max, fits", [(128, True), (127, False)])
def test_the_limit_of_a_single_item_is_that_of_delay(settings, bytes_max, fits):
    """128 bytes: the list of one text, and the two of the empty kwargs."""
    settings.PGQUEUE = {"PAYLOAD_BYTES_MAX": 128}
    item = ["x" * (122 if fits else 123)]

    for store in (lambda: make_order.delay(*item), lambda: make_order.bulk([item])):
        if fits:
            store()
        else:
            with pytest.raises(PayloadTooLarge):
                store()


def test_arguments_with_a_default_may_be_left_out():
    """By some of the items, too."""
    fails.bulk([{}, {"message": "a"}])
    fails.bulk([(), ("a",)])

    assert [([], {}), ([], {"message": "a"}), ([], {}), (["a"], {})] == [
        tuple(row[2:]) for row in rows()
    ]


def test_values_with_a_type_of_their_own_travel_in_a_bulk():
    """Those beside them are none the worse for it."""
    one = uuid.UUID(int=1)

    add.bulk([[n, one if n == 3 else n] for n in range(5)])

    args = [row[2] for row in rows()]
    assert [[n, n] for n in (0, 1, 2, 4)] == args[:3] + args[4:]
    assert {"__pgqueue__": "uuid", "value": str(one)} == args[3][1]


def test_backslashes_and_quotes_reach_the_row():
    """All arguments are one text on their way to the server."""
    texts = ["\\", "'", '"', "\\u0041", "\\\\u0000", "%s %(a)s", "a\nb\tc", "$1", "]"]

    make_order.bulk([[text] for text in texts])

    assert [[text] for text in texts] == [row[2] for row in rows()]


# What a call keeps -------------------------------------------------------------------


def test_a_changed_setting_counts_from_the_next_job(settings):
    """What an enqueuer keeps is for as long as the setting is the same."""
    enqueuer = noop.using(queue="mail")
    enqueuer.delay()
    noop.delay()
    settings.PGQUEUE = {"QUEUES": {"mail": {"priority": 7}}, "DEFAULTS": {"retries": 1}}
    enqueuer.delay()
    noop.delay()

    assert [(0, 5), (0, 5), (7, 2), (0, 2)] == list(
        Job.objects.order_by("pk").values_list("priority", "max_attempts")
    )


def test_headers_are_what_they_are_at_each_call():
    """The caller may go on changing what is in them."""
    inside = {"n": 1}
    enqueuer = noop.using(headers={"about": inside}, tags=["a"])
    enqueuer.delay()
    inside["n"] = 2
    enqueuer.delay()

    assert [{"n": 1}, {"n": 2}] == list(
        Job.objects.order_by("pk").values_list("headers__about", flat=True)
    )
    assert [["a"], ["a"]] == list(
        Job.objects.order_by("pk").values_list("headers__tags", flat=True)
    )
