"""References: from one place of the document to another, as JSON pointers in a URI."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

SCHEMAS = ("components", "schemas")


def to(*path: str) -> str:
    """Return the reference to what stands at a path."""
    words = [word.replace("~", "~0").replace("/", "~1") for word in path]
    return "#/" + "/".join(quote(word, safe="~") for word in words)


def to_schema(key: str) -> str:
    """Return the reference to a schema of the components."""
    return to(*SCHEMAS, key)


def words_of(reference: str) -> list[str]:
    """Return the path that a reference says."""
    words = [unquote(word) for word in reference.removeprefix("#/").split("/")]
    return [word.replace("~1", "/").replace("~0", "~") for word in words]


def follow(document: Any, reference: str) -> Any:
    """Return what a reference leads to; None: nothing is there."""
    found = document
    for word in words_of(reference):
        if not isinstance(found, dict):
            return None
        found = found.get(word)
    return found
