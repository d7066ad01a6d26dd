"""`manage.py pgqueue asyncapi`: the contract, and whether code keeps it."""

from __future__ import annotations

import json
import sys

import pytest
from django.db import connection

from django_pgqueue import task
from django_pgqueue.tasks import modules
from tests.contract.shop import open_shop
from tests.management.test_pgqueue import DONE, NOTHING, USAGE, run, told

UNUSABLE = 3


@pytest.fixture(autouse=True)
def shop(nothing):
    """Declare the shop, and let no SQL be sent: a contract needs no database."""
    open_shop()
    with connection.execute_wrapper(no_sql):
        yield


def no_sql(*args):
    raise AssertionError("SQL was sent")


@pytest.fixture
def contract(tmp_path):
    """A file with the contract as it is."""
    path = tmp_path / "asyncapi.json"
    path.write_text(run("asyncapi")[1], encoding="utf-8")
    return path


def test_it_prints_one_document():
    """As JSON, whether it is asked for or not."""
    status, out, err = run("asyncapi")
    assert DONE == status
    assert "" == err
    assert "3.0.0" == json.loads(out)["asyncapi"]
    assert "tests" == json.loads(out)["info"]["title"]
    assert out == run("asyncapi", "--json")[1]


def test_code_as_it_was_keeps_the_contract(contract, settings):
    """Also by the file that the settings name; and what is new breaks nobody."""
    assert (DONE, "Nothing breaks.\n", "") == run("asyncapi", "--check", contract)
    task(name="shop.later")(lambda: None)
    settings.PGQUEUE = {"CONTRACT": contract}
    status, out, err = run("asyncapi", "--check")
    assert (DONE, "Nothing breaks.\n") == (status, out)
    assert f"Code says more than {contract}" in err


def test_what_breaks_is_named(contract, nothing):
    """With status 1, who is broken, and the way out."""
    nothing()
    status, out, _ = run("asyncapi", "--check", contract)
    assert NOTHING == status
    assert "task shop.take: it is no longer declared" in out
    assert "topic orders: it is no longer declared" in out
    status, answer = told("asyncapi", "--check", contract)
    assert NOTHING == status
    assert not answer["is_current"]
    assert {"subject", "problem", "way_out"} == answer["breaks"][0].keys()


@pytest.mark.parametrize(
    "text",
    [
        *(None, "{", "[]", '{"channels": {"a": {}}}', '{"channels": 5}'),
        '{"channels": {"a": {"messages": {"m": {}}, "x-pgqueue": {}}}}',
        '{"channels": {}, "operations": {"a": {"messages": [{"$ref": "#/a"}]}}}',
    ],
)
def test_what_is_no_contract_is_refused(tmp_path, text):
    """By its path, with the command that writes one."""
    path = tmp_path / "asyncapi.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    status, _, err = run("asyncapi", "--check", path)
    assert USAGE == status
    assert f"pgqueue asyncapi > {path}" in err


def test_it_is_whole_or_not_at_all(monkeypatch):
    """Nothing to compare with; a module that is missing; no pydantic."""
    assert USAGE == run("asyncapi", "--check")[0]
    with monkeypatch.context() as broken:
        broken.setattr(modules, "_failed", {"shop.tasks": ImportError("blunder")})
        status, _, err = run("asyncapi")
        assert UNUSABLE == status
        assert "shop.tasks cannot be imported" in err
    monkeypatch.setitem(sys.modules, "pydantic", None)
    status, _, err = run("asyncapi")
    assert UNUSABLE == status
    assert "pydantic is not installed. It comes with the extra [schema]" in err
