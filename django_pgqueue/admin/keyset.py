"""
Keyset: the order of a list, and a place in it that fits into a URL.

A page begins beside a row that was seen, not at a number: `id < 4711 … LIMIT 50` costs
the same on the first page and on the ten thousandth, and nothing needs to be counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, cast

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import Field, Model, Q
from django.utils import timezone

# Between the values of a place. No number and no ISO time contains it.
SEPARATOR = "~"


@dataclass(frozen=True, slots=True)
class Keyset:
    """Columns that an index serves, the last one unique; lists have them falling."""

    columns: tuple[str, ...]

    # Whether a list has them falling as times: its first rows are the newest.
    is_by_time: ClassVar[bool] = True

    def falling(self) -> list[str]:
        """Return the order of a list."""
        return [f"-{name}" for name in self.columns]

    def rising(self) -> list[str]:
        """Return the opposite order."""
        return list(self.columns)

    def place_of(self, row: Model) -> str:
        """Return where *row* is in the list, as text."""
        return self.text([getattr(row, name) for name in self.columns])

    def text(self, values: list[Any] | tuple[Any, ...]) -> str:
        """Return the place that *values* of the columns make."""
        return SEPARATOR.join(
            value.isoformat() if isinstance(value, datetime) else str(value)
            for value in values
        )

    def below(self, model: type[Model], place: str, *, including: bool = False) -> Q:
        """
        Return the condition for rows after *place* in a list, so older ones.

        Args:
            model: Whose list it is.
            place: As place_of() returned it, or anything that a URL may contain.
            including: The row at *place* too.

        Raises:
            ValueError: *place* is none.
        """
        return self._beyond("lt", self.values(model, place), including=including)

    def above(self, model: type[Model], place: str, *, including: bool = False) -> Q:
        """
        Return the condition for rows before *place* in a list, so newer ones.

        As below().
        """
        return self._beyond("gt", self.values(model, place), including=including)

    def values(self, model: type[Model], place: str) -> list[Any]:
        """
        Return the values of the columns at *place*.

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

    def _beyond(self, lookup: str, values: list[Any], *, including: bool) -> Q:
        # a <= 1 AND (a < 1 OR b < 2): the first half is what an index on (a) serves.
        *leading, (last, value) = zip(self.columns, values, strict=True)
        condition = Q(**{f"{last}__{lookup}{'e' if including else ''}": value})
        for name, value in reversed(leading):
            condition = Q(**{f"{name}__{lookup}e": value}) & (
                Q(**{f"{name}__{lookup}": value}) | condition
            )
        return condition


class Alphabetical(Keyset):
    """A list from A to Z: what comes after a row in it is above it."""

    __slots__ = ()
    is_by_time: ClassVar[bool] = False

    def falling(self) -> list[str]:
        """Return the order of a list."""
        return list(self.columns)

    def rising(self) -> list[str]:
        """Return the opposite order."""
        return [f"-{name}" for name in self.columns]

    def below(self, model: type[Model], place: str, *, including: bool = False) -> Q:
        """Return the condition for rows after *place* in a list; as Keyset's."""
        return super().above(model, place, including=including)

    def above(self, model: type[Model], place: str, *, including: bool = False) -> Q:
        """Return the condition for rows before *place* in a list; as Keyset's."""
        return super().below(model, place, including=including)
