"""
Frames: a table of the queue, or a query, as a DataFrame of Spark's own JDBC source.

Each task is one statement in binary transfer. Spark leaves out columns that nobody
needs, and hands conditions to PostgreSQL. Without the driver a table is read by
format("pgqueue"), and a query through the memory of this process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from django_pgqueue.exceptions import SparkError, SparkOptionError, did_you_mean
from django_pgqueue.extras import arrow
from django_pgqueue.spark import java, options
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.dsn import DEFAULT_VARIABLE, DsnSource, find_dsn
from django_pgqueue.spark.jdbc import driver
from django_pgqueue.spark.jdbc.driver import Address, NotByJdbc, address
from django_pgqueue.spark.jdbc.snapshot import Snapshot
from django_pgqueue.spark.redact import masked
from django_pgqueue.spark.session import (
    MOMENTS_IN_SESSION,
    TIME_ZONE,
    redaction_in,
)
from django_pgqueue.spark.slices import DEFAULT_PARTITIONS_MAX, FETCH_ROWS_MAX, divide
from django_pgqueue.spark.tables import TYPES, Column, Table, ddl, quoted

# Every transfer in binary form, from the first row on: pgjdbc's own word for it.
BINARY = {"prepareThreshold": "-1"}

# Locks: ACCESS SHARE on the table, until the task has read its rows, in one snapshot of
# that task's or in the driver's.
TABLE = "(SELECT {columns} FROM {relation}) AS q"

# Locks: none. Who reads, where the DSN leaves it to libpq.
WHO = "SELECT current_user::text AS role, current_database()::text AS database"

# Locks: none. A task begins with these, in its transaction. PostgreSQL must read the
# moments of conditions in the zone in which Spark writes them. A range of ids is found
# by the primary key, also where no statistics say so.
SET_UP = (
    "SET TRANSACTION READ ONLY",
    "SET LOCAL timezone = '{zone}'",
    "SET LOCAL jit = off",
)
BY_KEY = "SET LOCAL enable_seqscan = off"

# The names of zones that mean the same to both; "GMT+2" does not.
ZONE = re.compile(r"UTC|GMT|[A-Z][A-Za-z_]+/[A-Za-z_+\-0-9/]+")


def read(
    spark: Any,
    table: str,
    *,
    columns: Sequence[str] | None = None,
    where: Any = None,
    partitions: int | None = None,
    snapshot: Snapshot | None = None,
    redact: Sequence[str] | None = None,
    dsn: DsnSource | None = None,
) -> Any:
    """
    Return a table of the queue as a DataFrame, without secrets.

    Args:
        spark: A SparkSession.
        table: "jobs", "archive", "dead_letters" or "log".
        columns: Names; None: all. Those that the query does not need are not fetched.
        where: Which rows: a condition in Spark's SQL, or a Column. PostgreSQL answers
            what it can, also of a where() that comes later.
        partitions: Tasks of Spark, at most; None: one for each 64 MiB, up to 64.
        snapshot: What snapshot() holds, for several reads that see the same; None: each
            task sees the moment at which it begins.
        redact: Regular expressions for names of secrets; (): none is hidden; None: what
            the session says.
        dsn: Where the database is; None: the snapshot's, else $PGQUEUE_DSN.

    Raises:
        SparkOptionError: An unknown table or column, or a value that cannot be.
        SparkError: The database cannot be reached; or a snapshot that has ended, or
            that there is no JDBC driver for.
    """
    given = options_of(table, columns, partitions, redact, _where(snapshot, dsn))
    return table_frame(spark, given, where, snapshot)


def query(
    spark: Any,
    sql: str,
    *,
    divide_by: str | None = None,
    partitions: int | None = None,
    snapshot: Snapshot | None = None,
    dsn: DsnSource | None = None,
) -> Any:
    """
    Return the rows of an SQL query as a DataFrame.

    Args:
        spark: A SparkSession.
        sql: One SELECT. Nothing of it is hidden, and it stands in Spark's UI.
        divide_by: A column of whole numbers of it, best a primary key, by whose ranges
            tasks read it; None: one task.
        partitions: Tasks, at most; None: one for each 250,000 rows that are expected.
        snapshot: As of read().
        dsn: As of read().

    Raises:
        SparkOptionError: No query; a column that Spark has no type for; or divide_by is
            no column of whole numbers.
        SparkError: PostgreSQL does not take it, or as of read().
    """
    sql = check_query(sql, partitions)
    text = find_dsn(spark, _where(snapshot, dsn))
    with Session(text, table=None) as session:
        columns = describe_query(session, sql)
        division: dict[str, Any] = {}
        if divide_by is not None:
            division = divide_query(session, sql, columns, divide_by, partitions)
        selected = ", ".join(column.sql_for_jdbc for column in columns)
        try:
            return _load(
                spark,
                _address(spark, session, text),
                f"({WHOLE_QUERY.format(columns=selected, query=sql)}) AS q",
                name="query",
                snapshot=snapshot,
                **division,
            )
        except NotByJdbc as reason:
            _without_driver(reason, snapshot)
        found_rows = read_query(session, sql, columns)
        return spark.createDataFrame(found_rows, ddl(columns))


def table_frame(
    spark: Any,
    given: Mapping[str, str],
    where: Any,
    snapshot: Snapshot | None = None,
) -> Any:
    """Return what read() does, asked for by options of format("pgqueue")."""
    asked = options.parse(given, streams=False)
    _where(snapshot, asked.dsn)
    names = [column.name for column in asked.columns or asked.table.columns]
    needed = _needed(asked.table, names, where)
    frame = None
    # JDBC knows no pace.
    if asked.rows_per_second_max is None:
        try:
            frame = _table_by_jdbc(spark, asked, needed, snapshot)
        except NotByJdbc as reason:
            _without_driver(reason, snapshot)
    if frame is None:
        fetched = {**given, "columns": ",".join(needed)}
        frame = spark.read.format("pgqueue").options(**fetched).load()
    if where is not None:
        frame = frame.where(where)
    return frame.select(*names)


def _table_by_jdbc(
    spark: Any,
    asked: options.ReadOptions,
    needed: Sequence[str],
    snapshot: Snapshot | None,
) -> Any:
    """Return the columns *needed* of a table by JDBC; raise NotByJdbc."""
    _check_ours(spark)
    table = asked.table
    text = find_dsn(spark, asked.dsn)
    with Session(text, table=table.name) as session:
        found = _address(spark, session, text)
        relation = "pgqueue_message" if table.is_log else table.relation
        predicates, fetch_rows = divide(session, relation, asked.partitions)
    by_key = (BY_KEY,) if len(predicates) > 1 else ()
    frame = _load(
        spark,
        found,
        TABLE.format(
            columns=", ".join(column.sql_for_jdbc for column in table.columns),
            relation=table.relation,
        ),
        name=table.name,
        snapshot=snapshot,
        set_up=by_key,
        fetch_rows=fetch_rows,
        predicates=predicates,
    )
    redaction = asked.redaction(redaction_in(spark))
    columns = [column for column in table.columns if column.name in needed]
    # What is left out here is not masked either.
    return masked(frame, columns, redaction).select(*needed)


def _load(
    spark: Any,
    where: Address,
    relation: str,
    *,
    name: str,
    snapshot: Snapshot | None,
    set_up: Sequence[str] = (),
    fetch_rows: int = FETCH_ROWS_MAX,
    **division: Any,
) -> Any:
    """Return *relation* by Spark's JDBC source; raise NotByJdbc."""
    first = () if snapshot is None else (snapshot.statement,)
    zone = _zone(spark)
    statements = (*first, *SET_UP, *set_up)
    properties = {
        **where.properties,
        "driver": driver.CLASS,
        "fetchsize": str(fetch_rows),
        "preferTimestampNTZ": "true",
        "sessionInitStatement": "; ".join(statements).format(zone=zone),
    }
    url = where.url(**BINARY, ApplicationName=f"pgqueue spark: {name}")
    try:
        return spark.read.jdbc(url, relation, properties=properties, **division)
    except Exception as error:
        if f"ClassNotFoundException: {driver.CLASS}" in str(error):
            raise NotByJdbc(driver.NOT_THERE) from None
        raise SparkError(
            f"Spark cannot read {name} by JDBC: {error_text(error)}"
        ) from None


def _address(spark: Any, session: Session, dsn: str) -> Address:
    """Return where JDBC finds the database of *session*; raise NotByJdbc."""
    _check_ours(spark)
    (who,) = session.rows(WHO)
    return address(dsn, user=who["role"], database=who["database"])


def _without_driver(reason: NotByJdbc, snapshot: Snapshot | None) -> None:
    if snapshot is not None:
        raise SparkError(f"A snapshot is for reading by JDBC. {reason}") from None
    driver.tell_once(str(reason))


def _where(snapshot: Snapshot | None, dsn: DsnSource | None) -> DsnSource:
    """Return where to read; raise SparkError where *snapshot* cannot be read there."""
    if snapshot is None:
        return dsn or DsnSource()
    if snapshot.has_ended:
        raise SparkError(
            "The snapshot has ended, with the `with` that held it: read inside of it."
        )
    if dsn is not None and dsn != snapshot.dsn:
        raise SparkError(
            "The snapshot is of another DSN than the read: leave dsn out, or give the "
            "same to snapshot()."
        )
    return snapshot.dsn


def options_of(
    table: str,
    columns: Sequence[str] | None,
    partitions: int | None,
    redact: Sequence[str] | None = None,
    dsn: DsnSource | None = None,
) -> dict[str, str]:
    """Return what read() is asked for as options of format("pgqueue")."""
    given: dict[str, str] = {"table": table}
    if columns is not None:
        given["columns"] = ",".join(columns)
    if partitions is not None:
        given["partitions"] = str(partitions)
    if redact is not None:
        given["redact"] = json.dumps(list(redact))
    if dsn is not None and dsn.file is not None:
        given["dsnFile"] = dsn.file
    if dsn is not None and dsn.variable != DEFAULT_VARIABLE:
        given["dsnEnv"] = dsn.variable
    return given


def _needed(table: Table, names: Sequence[str], where: Any) -> list[str]:
    """Return *names*, and the columns that the condition *where* may name."""
    words = set() if where is None else set(re.findall(r"\w+", str(where)))
    return [*names, *(c.name for c in table.columns if c.name in words - set(names))]


def _zone(spark: Any) -> str:
    """Return the zone in which Spark writes the moments of conditions."""
    if spark.conf.get(MOMENTS_IN_SESSION, "false") == "true":
        zone, where = spark.conf.get(TIME_ZONE), TIME_ZONE
    else:
        zone, where = java.zone(spark), "The zone of the driver's Java"
    if not ZONE.fullmatch(zone):
        raise SparkError(
            f"{where} is {zone[:40]!r}, which PostgreSQL may read in another way: set "
            f"it to UTC, or to a name such as Europe/Berlin."
        )
    return str(zone)


def _check_ours(spark: Any) -> None:
    """Raise NotByJdbc for a session of Spark Connect."""
    if ".connect." in type(spark).__module__:
        raise NotByJdbc("A server of Spark Connect has a DSN of its own.")


# What Python prints last of an error of ours.
OURS = re.compile(
    r"^django_pgqueue\.(?:\w+\.)*(?P<name>\w+): (?P<text>.+?)"
    r"(?=\n\s*(?:SQLSTATE|at )|\Z)",
    re.MULTILINE | re.DOTALL,
)

# Errors that one is the cause of.
CAUSES_MAX = 10


def error_text(error: BaseException) -> str:
    """Return what *error* says, with the name of its class."""
    ours = OURS.search(str(error))
    if ours is not None:
        return f"{ours['name']}: {' '.join(ours['text'].split())}"
    java = getattr(error, "java_exception", None)
    if java is not None:
        return f"{type(error).__name__}: {'; '.join(_causes(java))}"
    return f"{type(error).__name__}: {error}"


def _causes(java: Any) -> list[str]:
    """Return the first line of an error of Java's, and of each of its causes."""
    lines: dict[str, None] = {}
    for _ in range(CAUSES_MAX):
        if java is None:
            break
        lines[str(java.toString()).strip().partition("\n")[0]] = None
        java = java.getCause()
    return list(lines)


# Query ------------------------------------------------------------------------------
# A query is one SELECT. It runs in a read-only transaction, as the database's role may,
# and its columns say what Spark gets: they are cast, so that no driver guesses.

# Rows of a divided query that make one more task, unless the option partitions says.
ROWS_PER_PARTITION = 250_000

CHARACTERS_MAX = 100_000

# Arrow's types as the driver gives them, in Spark's words.
OF_ARROW = {arrow: name for name, (_, arrow) in TYPES.items()}

# Types of PostgreSQL that travel as text.
AS_TEXT = {"uuid", "json", "jsonb"}

WHOLE = {"smallint", "int", "bigint"}

# Of a decimal.
DIGITS_MAX = 38

# What PostgreSQL calls a column that has no name.
NAMELESS = "?column?"

# Locks: those of the query, ACCESS SHARE as a rule. The line break ends a comment.
WHOLE_QUERY = "SELECT {columns} FROM (\n{query}\n) AS q"
NO_ROW = "SELECT * FROM (\n{query}\n) AS q LIMIT 0"
ENDS = """
SELECT min({column})::bigint AS first, max({column})::bigint AS last
  FROM (\n{query}\n) AS q
"""
EXPECTED = "EXPLAIN (FORMAT JSON) SELECT * FROM (\n{query}\n) AS q"


def describe_query(session: Session, query: str) -> tuple[Column, ...]:
    """
    Return the columns of *query*, without a row of it.

    Raises:
        SparkError: PostgreSQL does not take it.
        SparkOptionError: A column has no name, or the name of another one, or a type
            that Spark does not have.
    """
    columns: list[Column] = []
    for field in session.schema(NO_ROW.format(query=query)):
        name = field.name
        if name == NAMELESS:
            raise SparkOptionError(
                f"Column {len(columns) + 1} of the query has no name: give it one with "
                f"AS."
            )
        if any(name.casefold() == column.name.casefold() for column in columns):
            raise SparkOptionError(
                f"The query has two columns named {name}: give one another name with "
                f"AS."
            )
        columns.append(Column(name, _type_of(field)))
    if not columns:
        raise SparkOptionError("The query has no column: select one at least.")
    return tuple(columns)


def check_query(text: str, partitions: int | None) -> str:
    """
    Return the query *text* without what ends it.

    Raises:
        SparkOptionError: It is empty, too long, or has a NUL; or there cannot be so
            many *partitions*.
    """
    if partitions is not None:
        options.PARTITIONS("partitions", str(partitions))
    query = text.strip().removesuffix(";").rstrip()
    if not query or "\0" in query or len(query) > CHARACTERS_MAX:
        raise SparkOptionError(
            f"The query has {len(query):,} characters; it must be a SELECT of up to "
            f"{CHARACTERS_MAX:,}, without NUL."
        )
    return query


def divide_query(
    session: Session,
    query: str,
    columns: Sequence[Column],
    divide_by: str,
    partitions: int | None,
) -> dict[str, Any]:
    """
    Return the ranges of *divide_by* that tasks read, as Spark's JDBC source takes them.

    There are *partitions* tasks, at most; None: by the rows that PostgreSQL expects.

    Raises:
        SparkOptionError: There is no such column, or it is of another type.
    """
    column = quoted(_whole(columns, divide_by).name)
    (ends,) = session.rows(ENDS.format(query=query, column=column))
    if ends["first"] is None:
        return {}
    if partitions is None:
        (explained,) = session.rows(EXPECTED.format(query=query), copies=False)
        (said,) = json.loads(next(iter(explained.values())))
        rows = int(said["Plan"]["Plan Rows"])
        partitions = min(1 + rows // ROWS_PER_PARTITION, DEFAULT_PARTITIONS_MAX)
    return {
        "column": divide_by,
        "lowerBound": ends["first"],
        "upperBound": ends["last"],
        "numPartitions": partitions,
    }


def read_query(session: Session, query: str, columns: Sequence[Column]) -> Any:
    """
    Return all rows of *query* as a pyarrow.Table, in the memory of this process.

    A numeric is text in it, which Spark casts.
    """
    statement = WHOLE_QUERY.format(
        columns=", ".join(column.sql_for_arrow for column in columns), query=query
    )
    batches = list(session.batches(statement))
    return arrow.Table.from_batches(
        batches, None if batches else session.schema(statement)
    )


def _type_of(field: Any) -> str:
    """Return the type of an Arrow field in Spark; raise SparkOptionError."""
    kind = OF_ARROW.get(str(field.type))
    if kind is not None:
        return kind
    told = field.metadata or {}
    name = (
        told.get(b"POSTGRESQL:type") or told.get(b"ADBC:postgresql:typname") or b""
    ).decode()
    if name in AS_TEXT:
        return "string"
    typmod = int(told.get(b"POSTGRESQL:typmod", b"-1"))
    if name == "numeric" and typmod >= 4:
        digits, scale = (typmod - 4) >> 16 & 0xFFFF, (typmod - 4) & 0x7FF
        if scale <= digits <= DIGITS_MAX:
            return f"decimal({digits},{scale})"
    raise SparkOptionError(
        f"Column {field.name} of the query is of the type {name or field.type}, which "
        f"Spark does not have: cast it in the query, to "
        f"{'numeric(12,2), say' if name == 'numeric' else 'text, say'}."
    )


def _whole(columns: Sequence[Column], name: str) -> Column:
    found = next((column for column in columns if column.name == name), None)
    if found is None:
        known = [column.name for column in columns]
        raise SparkOptionError(
            f"divide_by names {name!r}, which is no column of the query."
            f"{did_you_mean(name, known)} Its columns are {', '.join(known)}."
        )
    if found.type not in WHOLE:
        raise SparkOptionError(
            f"divide_by names {name!r}, of the type {found.type}; it must be "
            f"a column of whole numbers: smallint, integer or bigint."
        )
    return found
