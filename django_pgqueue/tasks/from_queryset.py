"""
From a queryset: which SQL gives the arguments that delay() would have stored.

The rows become jobs inside the database and never come to Python. So a field may only
be used where the database can write the same JSON that tasks/payload.py writes for
its value; any other is refused by name, before SQL is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django_pgqueue.exceptions import InvalidArgument, shown
from django_pgqueue.queues.enqueue_rows import Argument
from django_pgqueue.tasks import payload

if TYPE_CHECKING:
    from django.db.models import Field, QuerySet

# PostgreSQL passes 100 values to a function: a name and a value for each field.
FIELDS_MAX = 50

# Django's fields by their internal type, and how queues/enqueue_rows.py writes them.
PLAIN = "Boolean Char FilePath GenericIPAddress Slug Text"
INTEGER = (
    "Auto BigAuto SmallAuto BigInteger Integer SmallInteger PositiveBigInteger "
    "PositiveInteger PositiveSmallInteger"
)
KINDS = {
    **{f"{name}Field": "plain" for name in PLAIN.split()},
    **{f"{name}Field": "integer" for name in INTEGER.split()},
    "BinaryField": "bytes",
    "DateField": "date",
    "DateTimeField": "datetime",
    "DecimalField": "decimal",
    "DurationField": "timedelta",
    "FloatField": "float",
    "TimeField": "time",
    "UUIDField": "uuid",
}


def check_queryset(task: str, queryset: object, alias: str) -> None:
    """
    Raise InvalidArgument unless *queryset* reads from the database *alias*.

    Args:
        task: The task's name, for errors.
        queryset: What the caller gave.
        alias: The database that stores jobs.
    """
    from django.db import router
    from django.db.models import QuerySet

    if not isinstance(queryset, QuerySet):
        raise InvalidArgument(
            task=task,
            path="queryset",
            problem=f"is a {type(queryset).__qualname__}; it must be a QuerySet, such "
            f"as Model.objects.all()",
        )
    if queryset.query.combinator:
        raise InvalidArgument(
            task=task,
            path="queryset",
            problem=f"is a {queryset.query.combinator}(), to which no columns can be "
            f"added: combine conditions with Q(…) | Q(…)",
        )
    # Not queryset.db, which asks for a database to read from: a replica, maybe.
    chosen: str | None = queryset._db  # type: ignore[attr-defined]
    reads_from = chosen or router.db_for_write(queryset.model)
    if reads_from != alias:
        raise InvalidArgument(
            task=task,
            path="queryset",
            problem=f"reads from database {reads_from!r}, but jobs are stored in "
            f"{alias!r}: pass its values to bulk(), or say queryset.using({alias!r})",
        )


def select(
    task: str, queryset: QuerySet[Any, Any], fields: Mapping[str, Any], alias: str
) -> tuple[list[Argument], str, Sequence[Any]] | None:
    """
    Return the arguments, and a query whose first columns are those that vary.

    None: the queryset is known to be empty, so there is nothing to ask.

    Args:
        task: The task's name, for errors.
        queryset: Whose rows become jobs.
        fields: For each keyword argument the name of a field, an expression, or a
            constant as Value(…).
        alias: The database.

    Raises:
        InvalidArgument: A field does not exist, or its values cannot be written as
            JSON by the database.
    """
    from django.core.exceptions import EmptyResultSet
    from django.db.models import Value

    if len(fields) > FIELDS_MAX:
        problem = f"are {len(fields)}; from_queryset takes up to {FIELDS_MAX}"
        raise InvalidArgument(task=task, path="fields", problem=problem)
    arguments: list[Argument] = []
    columns: list[str] = []
    for name, given in fields.items():
        if isinstance(given, Value):
            constant = payload.encode_at(task, f"fields.{name}", given.value)
            arguments.append(Argument(name, None, constant))
            continue
        column = f"_pgqueue_{len(columns)}"
        queryset, kind = _annotated(task, queryset, column, name, given)
        arguments.append(Argument(name, kind))
        columns.append(column)
    chosen = queryset.values_list(*(columns or ["pk"]))
    try:
        query, params = chosen.query.get_compiler(using=alias).as_sql()
    except EmptyResultSet:
        return None
    return arguments, query, params


def _annotated(
    task: str,
    queryset: QuerySet[Any, Any],
    column: str,
    name: str,
    given: Any,
) -> tuple[QuerySet[Any, Any], str]:
    """Return the queryset with one more column, and of which kind that is."""
    from django.core.exceptions import FieldError
    from django.db import NotSupportedError
    from django.db.models import F

    def refuse(problem: str) -> InvalidArgument:
        return InvalidArgument(task=task, path=f"fields.{name}", problem=problem)

    expression = F(given) if isinstance(given, str) else given
    if not hasattr(expression, "resolve_expression"):
        raise refuse(
            f"is {shown(given)}, a {type(given).__qualname__}; it must be the name of "
            f"a field, an expression such as F(…), or a constant as Value(…)"
        )
    try:
        queryset = queryset.annotate(**{column: expression})
        resolved = queryset.query.annotations[column]
        field = _target(resolved.output_field)
    except (FieldError, NotSupportedError, TypeError, ValueError) as error:
        raise refuse(f"is {shown(given)}: {error}") from None
    kind = _kind(field)
    if kind is None or _is_read_by_python(resolved, field):
        raise refuse(
            f"is {shown(given)}, a {type(field).__qualname__}, whose values the "
            f"database cannot write as delay() does: pass the primary key, or use "
            f"bulk()"
        )
    return queryset, kind


def _target(field: Any) -> Field[Any, Any]:
    """Return the field that holds the values: of a ForeignKey, that of its target."""
    from django.db.models import ForeignKey, GeneratedField

    if isinstance(field, ForeignKey):
        return _target(field.target_field)
    if isinstance(field, GeneratedField):
        return _target(field.output_field)
    result: Field[Any, Any] = field
    return result


def _kind(field: Field[Any, Any]) -> str | None:
    from django.conf import settings

    kind = KINDS.get(field.get_internal_type())
    if kind == "datetime" and not settings.USE_TZ:
        return "naive datetime"
    return kind


def _is_read_by_python(resolved: Any, field: Field[Any, Any]) -> bool:
    """Whether Django would change what the database answers, a Trunc() say."""
    from django.db.models.expressions import BaseExpression

    own = getattr(type(resolved), "convert_value", None)
    return (own is not None and own is not BaseExpression.convert_value) or hasattr(
        field, "from_db_value"
    )
