"""A DSN of libpq's, and what JDBC makes of it."""

from __future__ import annotations

import pytest

from django_pgqueue.spark.jdbc.driver import NotByJdbc, address


def told(dsn):
    found = address(dsn, user="ada", database="shop")
    return found.server, dict(found.parameters), dict(found.properties)


def test_a_dsn_becomes_a_url_and_properties():
    """The password is no part of the URL; what the DSN leaves out is libpq's own."""
    assert told("postgresql://eve:p%40ss@db.example:5433/a%2Fb?sslmode=require") == (
        "jdbc:postgresql://db.example:5433/a%2Fb",
        {"sslmode": "require"},
        {"user": "eve", "password": "p@ss"},
    )
    assert told("host=db") == ("jdbc:postgresql://db:5432/shop", {}, {"user": "ada"})
    assert "p@ss" not in repr(address("host=db password=p@ss", user="a", database="b"))


def test_several_servers_and_their_kind_are_kept():
    """So that a reader finds the standby that libpq would."""
    dsn = (
        "host=a,::1 port=1,2 dbname=d target_session_attrs=prefer-standby "
        "options='-c role=r' connect_timeout=3 keepalives=1 application_name=x"
    )

    assert told(dsn) == (
        "jdbc:postgresql://a:1,[::1]:2/d",
        {
            "targetServerType": "preferSecondary",
            "options": "-c role=r",
            "connectTimeout": "3",
            "tcpKeepAlive": "true",
        },
        {"user": "ada"},
    )
    assert (
        address(dsn, user="ada", database="d")
        .url(ApplicationName="x y")
        .endswith("&connectTimeout=3&options=-c%20role%3Dr&ApplicationName=x%20y")
    )


@pytest.mark.parametrize(
    "dsn, reason",
    [
        ("dbname=shop", "a Unix socket"),
        ("host=/run/postgresql", "a Unix socket"),
        ("host=db service=shop", "has service"),
        ("host=db channel_binding=require", "has channel_binding"),
    ],
)
def test_what_jdbc_lacks_is_said(dsn, reason):
    """And never left out."""
    with pytest.raises(NotByJdbc, match=reason):
        told(dsn)
