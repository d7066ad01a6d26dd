"""The columns that Spark reads are a contract: code, database and page agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.db import connection

from django_pgqueue.spark.tables import CONTRACT_VERSION, LOG, TABLES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "spark.md"

# What the database calls each type of the contract.
DATABASE_TYPES = {
    "bigint": {"bigint"},
    "int": {"integer"},
    "smallint": {"smallint"},
    "double": {"double precision"},
    "boolean": {"boolean"},
    "string": {"character varying", "text", "jsonb"},
    "timestamp": {"timestamp with time zone"},
}

COLUMNS = """
SELECT column_name, data_type FROM information_schema.columns
 WHERE table_schema = current_schema() AND table_name = %s
"""

# The log is read through a join.
RELATIONS = {"log": "pgqueue_message"}


@pytest.mark.django_db
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_database_has_the_columns_of_the_contract(table):
    """All of them, and no other; each of a type that the contract's can hold."""
    with connection.cursor() as cursor:
        cursor.execute(COLUMNS, [RELATIONS.get(table.name, table.relation)])
        existing = dict(cursor.fetchall())
    if table is LOG:
        # Spark gets the topic's name; epochs are between publishers and subscriptions.
        del existing["topic_id"], existing["epoch"]
        existing["topic"] = "text"

    assert {column.name for column in table.columns} == set(existing)
    for column in table.columns:
        assert existing[column.name] in DATABASE_TYPES[column.type], column.name
        assert column.is_json == (existing[column.name] == "jsonb"), column.name


def columns(text, heading):
    """Return names and types in the table under *heading*."""
    found = re.search(
        rf"^### {re.escape(heading)}$(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert found, heading
    return re.findall(r"^\| `(\w+)` \| (\w+) \|", found[1], re.MULTILINE)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_page_has_the_columns_of_the_contract(table):
    """In their order, with their types."""
    text = PAGE.read_text(encoding="utf-8")
    of_all = [] if table is LOG else columns(text, "Of jobs, archive and dead letters")
    documented = of_all + columns(text, f"`{table.name}`")

    assert [(c.name, c.type) for c in table.columns] == documented
    assert f"version {CONTRACT_VERSION}" in text
