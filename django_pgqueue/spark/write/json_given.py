"""
JSON given: arguments, tags and headers as JSON text, checked as delay() would.

Each text is read once by Python's parser, which is C. What it holds is then looked at
for all rows of a batch together; only where that finds something is each row looked at.
Tags and headers repeat, and each set of them is looked at once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django_pgqueue.exceptions import InvalidOption
from django_pgqueue.options.marks import check_headers, check_tags
from django_pgqueue.spark.write.options import WriteOptions
from django_pgqueue.tasks.plain import ENCODER, plain_items, plain_text
from django_pgqueue.tasks.walk import Unfit, text_of

NAMES: dict[type, str] = {dict: "object", list: "array"}


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
                    stored[place] = text_of(value)
                except Unfit as unfit:
                    problems[place] = f"{path}{unfit.path} {unfit.problem}"
    return stored, problems


def marks(options: WriteOptions, headers: str, tags: str) -> tuple[str | None, str]:
    """
    Return the headers of a job as JSON text, or None and why it is refused.

    Args:
        options: With headers of all jobs, which the row's replace, and tags of all,
            before the row's.
        headers: The row's, a JSON object.
        tags: The row's, a JSON array.
    """
    try:
        values = {**options.headers, **check_headers(json.loads(headers))}
        every = check_tags([*options.tags, *json.loads(tags)])
        text = text_of({**values, "tags": list(every)} if every else values)
    except InvalidOption as error:
        return None, str(error).rstrip(".")
    except Unfit as unfit:
        return None, f"headers{unfit.path} {unfit.problem}"
    except (ValueError, RecursionError) as error:
        return None, f"headers are no JSON: {error}"
    size, bytes_max = len(text.encode()), options.payload_bytes_max
    if size > bytes_max:
        return None, f"headers take {size:,} bytes as JSON; the limit is {bytes_max:,}"
    return text, ""
