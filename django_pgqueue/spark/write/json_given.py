"""
JSON given: arguments that the DataFrame has as JSON text, checked as delay() would.

Each text is read once by Python's parser, which is C. What it holds is then looked at
for all rows of a batch together; only where that finds something is each row looked at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from django_pgqueue.bounds import FLOAT_PLAIN_MAX
from django_pgqueue.tasks.plain import (
    DEPTH_MAX,
    ENCODER,
    INTEGER_DIGITS_MAX,
    TAG,
    plain_items,
    plain_text,
)

NAMES: dict[type, str] = {dict: "object", list: "array"}


class Unfit(Exception):
    """A value cannot travel; the text says where it is, and why."""


def check_texts(
    texts: Sequence[str | None], kind: type | None, path: str
) -> tuple[list[str], dict[int, str]]:
    """
    Return the JSON texts to store, and by place why a text is refused.

    Args:
        texts: None: no arguments.
        kind: dict or list: what each text must hold; None: any value.
        path: Where they stand, for errors: "kwargs".
    """
    problems: dict[int, str] = {}
    values: list[Any] = []
    for place, text in enumerate(texts):
        value = kind() if kind else None
        if text is not None:
            try:
                value = json.loads(text)
            except (ValueError, RecursionError) as error:
                problems[place] = f"{path} is no JSON that can be read: {error}"
            else:
                if kind and type(value) is not kind:
                    problems[place] = f"{path} must be a JSON {NAMES[kind]}"
                    value = kind()
        values.append(value)
    empty = ENCODER.encode(kind() if kind else None)
    stored = [empty if text is None else text for text in texts]
    if values and plain_items(values) is None:
        for place, value in enumerate(values):
            if plain_text(value) is None and place not in problems:
                try:
                    # A float of Python's may be written in a way of ours.
                    stored[place] = fit_text(value, path)
                except Unfit as unfit:
                    problems[place] = str(unfit)
    return stored, problems


def fit_text(value: Any, path: str) -> str:
    """
    Return JSON text of what a parser of JSON returned.

    Raises:
        Unfit: It cannot travel.
    """
    return ENCODER.encode(_fit(value, path, 0))


def _fit(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if kind is dict or kind is list:
        if depth >= DEPTH_MAX:
            raise Unfit(f"{path} is nested deeper than {DEPTH_MAX} levels")
        if kind is list:
            return [
                _fit(item, f"{path}[{place}]", depth + 1)
                for place, item in enumerate(value)
            ]
        return {
            _fit_key(key, path): _fit(item, f"{path}.{key}", depth + 1)
            for key, item in value.items()
        }
    if kind is str:
        return _fit_string(value, path)
    if kind is float:
        if not math.isfinite(value):
            raise Unfit(f"{path} is {value}, which JSON cannot hold")
        if not -FLOAT_PLAIN_MAX < value < FLOAT_PLAIN_MAX:
            return {TAG: "float", "value": repr(value)}
    if kind is int and abs(value) >= 10**INTEGER_DIGITS_MAX:
        raise Unfit(f"{path} has more than {INTEGER_DIGITS_MAX:,} digits")
    return value


def _fit_key(key: str, path: str) -> str:
    if key == TAG:
        raise Unfit(f"{path} has the key {TAG!r}, which is reserved")
    return _fit_string(key, f"{path} has a key that")


def _fit_string(value: str, path: str) -> str:
    if "\x00" in value:
        raise Unfit(f"{path} holds a NUL character, which PostgreSQL cannot store")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unfit(f"{path} holds a lone surrogate, which is no character") from None
    return value
