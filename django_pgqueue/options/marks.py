"""Marks: tags and headers, checked; whoever has no Django checks them so as well."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django_pgqueue.bounds import (
    RESERVED,
    RESERVED_PREFIX,
    TAG_CHARACTERS_MAX,
    TAGS_MAX,
)
from django_pgqueue.exceptions import InvalidOption, shown


def check_tags(tags: object) -> tuple[str, ...]:
    """Return *tags* without repeats; raise InvalidOption."""
    if isinstance(tags, str) or not isinstance(tags, Collection):
        raise InvalidOption(f"tags={shown(tags)}: it must be a list of texts.")
    for tag in tags:
        if (
            not isinstance(tag, str)
            or not 1 <= len(tag) <= TAG_CHARACTERS_MAX
            or not tag.isprintable()
        ):
            raise InvalidOption(
                f"tags has {shown(tag)}; a tag is text of 1 to {TAG_CHARACTERS_MAX} "
                f"printable characters."
            )
    unique = tuple(dict.fromkeys(str.__str__(tag) for tag in tags))
    if len(unique) > TAGS_MAX:
        raise InvalidOption(f"tags has {len(unique)} tags; a job has up to {TAGS_MAX}.")
    return unique


def check_headers(headers: object) -> Mapping[str, Any]:
    """Return *headers*; raise InvalidOption for a reserved key or no dict."""
    if not isinstance(headers, Mapping):
        raise InvalidOption(f"headers={shown(headers)}: it must be a dict.")
    for key in headers:
        if not isinstance(key, str) or not key:
            raise InvalidOption(f"headers has the key {shown(key)}; keys must be text.")
        if key.startswith(RESERVED_PREFIX):
            raise InvalidOption(
                f"headers has the key {shown(key)}; keys that begin with "
                f"{RESERVED_PREFIX!r} are reserved."
            )
        if key in RESERVED:
            way_out = ": give tags=[…] instead" if key == "tags" else "; take another"
            raise InvalidOption(
                f"headers has the key {key!r}, which is reserved{way_out}."
            )
    return headers
