"""`manage.py pgqueue asyncapi`: the contract, and whether code keeps it."""

from __future__ import annotations

import json
import sys

import pytest
from django.db import connection

from django_pgqueue import task
from django_pgqueue.tasks import registry
from tests.contract.shop import open_shop
from tests.management.test_pgqueue import DONE, NOTHING, USAGE, run, told

UNUSABLE = 3


@pytest.fixture(autouse=True)
def shop(nothing):
    """Declare the shop, and fail on SQL: a contract needs no database."""
    open_shop()
    with connection.execute_wrapper(no_sql):
        yield


def no_sql(*args):
    raise AssertionError("SQL was sent")


def test_the_document_is_printed_and_compared(tmp_path, nothing, settings):
    """Report additions without failing, and breaks with status 1 and a way out."""
    status, out, err = run("asyncapi")
    assert (DONE, "") == (status, err)
    assert "tests" == json.loads(out)["info"]["title"]
    contract = tmp_path / "asyncapi.json"
    contract.write_text(out, encoding="utf-8")
    assert (DONE, "Nothing breaks.\n", "") == run("asyncapi", "--check", contract)

    task(name="shop.later")(lambda: None)
    settings.PGQUEUE = {"CONTRACT": contract}
    status, out, err = run("asyncapi", "--check")
    assert (DONE, "Nothing breaks.\n") == (status, out)
    assert f"Code says more than {contract}" in err

    nothing()
    status, out, _ = run("asyncapi", "--check", contract)
    assert NOTHING == status
    assert "task shop.take: it is no longer declared" in out
    assert "topic orders: it is no longer declared" in out
    status, answer = told("asyncapi", "--check", contract)
    assert NOTHING == status
    assert not answer["is_current"]
    assert {"subject", "problem", "way_out"} == answer["breaks"][0].keys()


@pytest.mark.parametrize("text", [None, "{", "[]", '{"channels": {"a": {}}}'])
def test_a_file_that_is_no_contract_is_refused(tmp_path, text):
    """Name its path, and the command that writes one."""
    path = tmp_path / "asyncapi.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    status, _, err = run("asyncapi", "--check", path)
    assert USAGE == status
    assert f"pgqueue asyncapi > {path}" in err


def test_an_incomplete_document_is_not_printed(monkeypatch):
    """Fail without a file to compare, a module of tasks, or pydantic."""
    assert USAGE == run("asyncapi", "--check")[0]
    with monkeypatch.context() as broken:
        broken.setattr(registry, "_failed", {"shop.tasks": ImportError("blunder")})
        status, _, err = run("asyncapi")
        assert UNUSABLE == status
        assert "shop.tasks cannot be imported" in err
    monkeypatch.setitem(sys.modules, "pydantic", None)
    status, _, err = run("asyncapi")
    assert UNUSABLE == status
    assert "pydantic is not installed. It comes with the extra [schema]" in err
