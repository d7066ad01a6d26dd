"""Versions: a saga keeps the steps it began with; a deploy says how many do."""

from __future__ import annotations

import gc
import io

import pytest
from django.urls import reverse

from django_pgqueue import saga, task
from django_pgqueue.apps import _declare
from django_pgqueue.models import Workflow
from django_pgqueue.testing import drain
from tests.app.saga_tasks import order
from tests.management.test_doctor import database, examined
from tests.management.test_pgqueue import run

__all__ = ["database"]  # A fixture.

pytestmark = pytest.mark.django_db


@pytest.fixture
def pack(monkeypatch):
    """Tasks that are no step of a saga yet."""
    from django_pgqueue.tasks import registry

    monkeypatch.setattr(registry, "tasks", dict(registry.tasks))

    @task(name="pack")
    def pack(box: int) -> int:
        return box

    @task(name="send")
    def send(box: int) -> int:
        return box

    @task(name="unpack")
    def unpack(box: int) -> None: ...

    return pack, send, unpack


def declared(*steps, name="parcel", not_before=None):
    """Return a saga of these tasks, the first of which may be undone."""
    made = saga(name)
    first, *rest = steps
    made.step(first, compensate="unpack" if not_before is not None else None)
    for step in rest:
        made.step(step)
    return made


def test_a_version_stands_for_the_steps(pack):
    """For names, tasks, order, what undoes them and when; the same in each process."""
    one, two, undo = pack

    def undone(wait):
        made = declared(one, two, not_before=wait)
        made.compensation(undo, not_before=wait)
        return made.version

    found = [
        declared(one, two).version,
        declared(two, one).version,
        declared(one).version,
        undone("1h"),
        undone("2h"),
    ]
    assert 5 == len({*found})
    assert (found[0], found[3]) == (declared(one, two).version, undone("60m"))
    assert "04bd19935995" == order.version  # Whatever seeds the hashes.


def test_a_deploy_says_how_many_runs_keep_other_steps(pack, client, admin_user):
    """The doctor, `flows`, the admin, a migration; they run by what they began with."""
    one, two, _undo = pack
    old = declared(one, two)
    runs = [old.start(box=n) for n in range(3)]
    assert ("ok", {}) == told()
    del old
    gc.collect()
    new = declared(two, one)
    assert [{"parcel": 3}, 0] == [told()[1], new.start(box=9).refresh()._read().dead]

    assert "parcel (3)" in examined()[1]["saga_versions"]["what"]
    err = run("flows")[2]
    assert "begun with other steps than are declared now: parcel (3)" in err
    assert "began with other steps" in run("flows", str(runs[0].id))[1]
    client.force_login(admin_user)
    page = client.get(reverse("admin:pgqueue_workflow_changelist")).content.decode()
    assert 3 == page.count("began with other steps")
    page = client.get(
        reverse("admin:pgqueue_workflow_change", args=[runs[0].id])
    ).content.decode()
    assert 1 == page.count("began with other steps than are declared now")
    written = io.StringIO()
    _declare(using="default", stdout=written)
    assert (
        "  Saga parcel: 3 under way began with other steps, and keep them\n"
        in written.getvalue()
    )

    drain()
    names = [[step.name for step in run.steps()] for run in runs]
    assert [["pack", "send"]] * 3 == names
    assert {"succeeded"} == set(Workflow.objects.values_list("state", flat=True))
    assert ("ok", {}) == told()
    assert "began with other" not in run("flows", str(runs[0].id))[1]


def told():
    finding = examined()[1]["saga_versions"]
    return finding["severity"], finding["value"]
