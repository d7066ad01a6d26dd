"""
Destinations: where a job of the queue may let a pipeline job write files.

Whoever may run a pipeline job chooses its options. So an address among them must be one
that the settings name, or lie below it; what stands in the job's own code needs no
word. The command line is free: who has a shell there can read the database anyway.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.spark.job import PipelineJob
from django_pgqueue.spark.templates import fill, names_in


def check_destinations(
    job: PipelineJob, options: Mapping[str, Any], allowed: Sequence[str]
) -> None:
    """
    Let the addresses pass that *options* say, if all of them are allowed.

    Args:
        job: What is run.
        options: As PipelineJob.read_options() returns them.
        allowed: Paths and URIs, each with all that is below it.

    Raises:
        SparkOptionError: One is not.
    """
    known = [
        *map(normal, allowed),
        *(normal(address) for address in _addresses(job, job.options)),
    ]
    for address in _addresses(job, options):
        asked = normal(address)
        if not any(is_within(asked, prefix) for prefix in known if prefix):
            raise SparkOptionError(
                f"The pipeline job {job.name} may not write to {address!r} when the "
                f"queue runs it. Allowed are PGQUEUE['EXPORT']['path'] and what "
                f"PGQUEUE['SPARK']['destinations'] names: {_listed(allowed)}. Add it "
                f"there, or run it by manage.py pgqueue_pipeline."
            )


def normal(address: str) -> str:
    """
    Return *address* with one spelling; "": it climbs with "..", and is nowhere.

    A path and its URI with file: are the same.
    """
    scheme, colon, rest = address.partition(":")
    if not colon or "/" in scheme:
        scheme, rest = "file", address
    host = ""
    if rest.startswith("//"):
        host, slash, below = rest[2:].partition("/")
        rest = slash + below
    # Some clients decode it, and some do not.
    if ".." in unquote(unquote(rest)).replace("\\", "/").split("/"):
        return ""
    path = posixpath.normpath(f"/{rest.lstrip('/')}").rstrip("/")
    return f"{scheme.lower()}://{host}{path}"


def is_within(address: str, prefix: str) -> bool:
    """Whether *address* is *prefix* or below it, both as normal() returns them."""
    return bool(address) and (
        address == prefix or address.startswith(f"{prefix.rstrip('/')}/")
    )


def chosen(template: str, options: Mapping[str, Any]) -> list[str]:
    """Return the address of *template*, if options choose more than a folder in it."""
    if not names_in(template):
        return []
    filled = fill(template, options, _Moment())
    if not filled:
        return []
    fixed = template[: template.index("{")].rpartition("/")[0]
    is_named = fixed not in ("", "/") and not fixed.endswith((":", ":/"))
    if is_named and is_within(normal(filled), normal(fixed)):
        return []
    return [filled]


class _Moment:
    """Stands for the run in a template, whose moment says nothing about the place."""

    def __getattr__(self, name: str) -> _Moment:
        return self

    def __format__(self, spec: str) -> str:
        return "run"


def _addresses(job: PipelineJob, options: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for sink in job.sinks.values():
        destinations = getattr(sink, "destinations", None)
        if destinations is not None:
            found += filter(None, destinations(options))
    return found


def _listed(allowed: Sequence[str]) -> str:
    return ", ".join(allowed) or "none"
