"""The names of django_pgqueue.testing are loaded when they are first used."""

from __future__ import annotations

import pytest

from django_pgqueue import testing


def test_every_name_is_there():
    """As an attribute like any other."""
    assert sorted(testing.__all__) == sorted(testing._HOMES)
    for name in testing.__all__:
        assert getattr(testing, name) is not None
        assert name in dir(testing)


def test_an_unknown_name_is_an_attribute_error():
    """As of any module."""
    with pytest.raises(AttributeError, match=r"'django_pgqueue\.testing'.*'darin'"):
        _ = testing.darin
