"""
Marks: the tags and headers of a job, as using(tags=…, headers=…) checks them.

They repeat: a write of a million rows has a few sets of tags. So each is looked at
once, however many rows have it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django_pgqueue.bounds import (
    RESERVED,
    RESERVED_PREFIX,
    TAG_CHARACTERS_MAX,
    TAGS_MAX,
)
from django_pgqueue.spark.write.json_given import Unfit, fit_text


def check_tags(tags: Sequence[Any]) -> str | None:
    """Return what is wrong with *tags*, or None."""
    for tag in tags:
        if (
            not isinstance(tag, str)
            or not 1 <= len(tag) <= TAG_CHARACTERS_MAX
            or not tag.isprintable()
        ):
            return (
                f"tags has {tag!r:.80}; a tag is text of 1 to {TAG_CHARACTERS_MAX} "
                f"printable characters"
            )
    unique = len(dict.fromkeys(tags))
    if unique > TAGS_MAX:
        return f"tags has {unique} tags; a job has up to {TAGS_MAX}"
    return None


def check_headers(headers: Mapping[str, Any]) -> str | None:
    """Return what is wrong with *headers*, or None."""
    for key in headers:
        if not key:
            return "headers has an empty key"
        if key.startswith(RESERVED_PREFIX):
            return (
                f"headers has the key {key!r:.80}; keys that begin with "
                f"{RESERVED_PREFIX!r} are reserved"
            )
        if key in RESERVED:
            way_out = ": write tags instead" if key == "tags" else ""
            return f"headers has the key {key!r}, which is reserved{way_out}"
    return None


def marks(
    headers: str,
    tags: str,
    *,
    of_all: Mapping[str, Any],
    tags_of_all: Sequence[str],
    bytes_max: int,
) -> tuple[str | None, str]:
    """
    Return the headers of a job as JSON text, or None and why it is refused.

    Args:
        headers: The row's, a JSON object.
        tags: The row's, a JSON array.
        of_all: Headers that all jobs of the write have; the row's replace them.
        tags_of_all: Tags that all have; the row's come behind them.
        bytes_max: Of the text.
    """
    try:
        own, own_tags = json.loads(headers), json.loads(tags)
    except (ValueError, RecursionError) as error:
        return None, f"headers are no JSON: {error}"
    if not isinstance(own, dict):
        return None, "headers must be a JSON object"
    every = list(dict.fromkeys([*tags_of_all, *own_tags]))
    problem = check_headers(own) or check_tags(every)
    if problem is not None:
        return None, problem
    values = {**of_all, **own}
    if every:
        values["tags"] = every
    try:
        text = fit_text(values, "headers")
    except Unfit as unfit:
        return None, str(unfit)
    size = len(text.encode())
    if size > bytes_max:
        return None, f"headers take {size:,} bytes as JSON; the limit is {bytes_max:,}"
    return text, ""
