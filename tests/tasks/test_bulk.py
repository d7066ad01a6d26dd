"""Bulk: items that are written together are what delay() makes of each."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_pgqueue import InvalidArgument, PgQueueError
from django_pgqueue.models import Job
from django_pgqueue.tasks.enqueuer import ITEMS_TOGETHER
from tests.app.tasks import add
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


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
