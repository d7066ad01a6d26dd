"""
Paging: the order of a list, a place in it that fits into a URL, and how far one looks.

A page begins beside a row that was seen, not at a number: `id < 4711 … LIMIT 50` costs
the same on the first page and on the ten thousandth, and nothing needs to be counted.
A filter that few rows pass would still walk a whole table. So one look goes through
LOOK_ROWS_MAX rows, whether they pass or not, and says where to go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import Field, Model, Q, QuerySet
from django.utils import timezone

from django_pgqueue.conf import get_settings
from django_pgqueue.log.browse import LOOK_ROWS_MAX
from django_pgqueue.postgres.limited import limited
from django_pgqueue.postgres.limits import Plans

# Longer than any statement over so many rows takes.
STATEMENT_SECONDS_MAX = 60

# Between the values of a place. No number and no ISO time contains it.
SEPARATOR = "~"


@dataclass(frozen=True, slots=True)
class Keyset:
    """Columns that an index serves, the last one unique."""

    columns: tuple[str, ...]
    # Whether a list has them falling, as times: its first rows are the newest.
    # Otherwise it goes from A to Z.
    is_by_time: bool = True
    # Columns of the index before these, of which all rows of a list have one value. It
    # is said as a range, or PostgreSQL takes the order for one without them, and walks
    # along another index.
    within: tuple[str, ...] = ()

    def order(self, *, back: bool = False) -> list[str]:
        """Return the order of a list, or the opposite: *back*, towards its head."""
        sign = "" if back is self.is_by_time else "-"
        return [f"{sign}{name}" for name in (*self.within, *self.columns)]

    def place_of(self, row: Model) -> str:
        """Return where *row* is in the list, as text."""
        return self.text([getattr(row, name) for name in self.columns])

    def text(self, values: Sequence[Any]) -> str:
        """Return the place that *values* of the columns make."""
        return SEPARATOR.join(
            value.isoformat() if isinstance(value, datetime) else str(value)
            for value in values
        )

    def values(self, model: type[Model], place: str) -> list[Any]:
        """
        Return the values of the columns at *place*.

        Args:
            model: Whose list it is.
            place: As place_of() returned it, or anything that a URL may contain.

        Raises:
            ValueError: *place* is none.
        """
        texts = place.split(SEPARATOR, len(self.columns) - 1)
        if len(texts) != len(self.columns) or "\x00" in place:
            raise ValueError(f"{place!r} is no place in a list of {model.__name__}")
        try:
            values = [
                # clean() knows how large an integer of this column may be.
                cast("Field[Any, Any]", model._meta.get_field(name)).clean(text, None)
                for name, text in zip(self.columns, texts, strict=True)
            ]
        except ValidationError as error:
            raise ValueError(str(error)) from None
        for value in values:
            # Without USE_TZ, Django's times have no zone, and neither have places.
            if isinstance(value, datetime) and timezone.is_naive(value) == (
                settings.USE_TZ
            ):
                raise ValueError(f"{value} is no time as this project has them")
        return values

    def beyond(
        self, values: Sequence[Any], *, back: bool = False, including: bool = False
    ) -> Q:
        """
        Return the condition for rows after one in a list, or before it.

        Args:
            values: Of that row.
            back: Before it.
            including: That row too.
        """
        lookup = "gt" if back is self.is_by_time else "lt"
        # a <= 1 AND (a < 1 OR b < 2): the first half is what an index on (a) serves.
        *leading, (last, value) = zip(self.columns, values, strict=True)
        condition = Q(**{f"{last}__{lookup}{'e' if including else ''}": value})
        for name, value in reversed(leading):
            condition = Q(**{f"{name}__{lookup}e": value}) & (
                Q(**{f"{name}__{lookup}": value}) | condition
            )
        return condition

    def at(
        self, rows: QuerySet[Any], number: int = 0, *, back: bool = False
    ) -> Sequence[Any] | None:
        """Return the values of the row *number* rows onward; None: there are fewer."""
        ordered = rows.order_by(*self.order(back=back)).values_list(*self.columns)
        return next(iter(ordered[number : number + 1]), None)


BY_ID = Keyset(("id",))


def in_order() -> AbstractContextManager[None]:
    """Open a transaction in which rows are read along the index of their ids."""
    return limited(
        get_settings().database, seconds=STATEMENT_SECONDS_MAX, plans=Plans.IN_ORDER
    )


def floor_of(rows: QuerySet[Any]) -> int | None:
    """Return the lowest id of those that one look goes through; None: all."""
    (floor,) = BY_ID.at(rows, LOOK_ROWS_MAX) or (None,)
    return floor


def windows(rows: QuerySet[Any], top: int) -> Iterator[tuple[int, QuerySet[Any]]]:
    """
    Yield ids up to *top* with those of *rows* below each, for one look through a table.

    Window by window no statement takes long, so none holds back vacuum, and whoever
    waits can be told how far it is.
    """
    last = 0
    while last < top:
        end = window_end(rows, last, top)
        yield end, rows.filter(id__gt=last, id__lte=end)
        last = end


def window_end(rows: QuerySet[Any], after: int, top: int) -> int:
    """Return the id up to which one look beyond *after* goes, *top* at most."""
    table = rows.model._default_manager.using(rows.db)
    with in_order():
        left = table.filter(id__gt=after, id__lte=top)
        (end,) = BY_ID.at(left, LOOK_ROWS_MAX - 1, back=True) or (top,)
    return int(end)
