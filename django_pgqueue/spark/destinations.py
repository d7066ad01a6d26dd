"""
Destinations: where a job of the queue may let a pipeline job write files.

Whoever may run a pipeline job chooses its options. So those that it declares as
`chooses` must be an address that the settings name, or lie below one; what stands in
the job's own code, such as their defaults, needs no word. The command line is free: who
has a shell there can read the database anyway.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.spark.job import PipelineJob


def check_destinations(
    job: PipelineJob, options: Mapping[str, Any], allowed: Sequence[str]
) -> None:
    """
    Let the addresses pass that *options* say, if all of them are *allowed*.

    An allowed address stands for all that is below it.

    Raises:
        SparkOptionError: One is not.
    """
    known = [*map(normal, allowed), *map(normal, _addresses(job, job.options))]
    for address in _addresses(job, options):
        asked = normal(address)
        if not any(is_within(asked, prefix) for prefix in known if prefix):
            raise SparkOptionError(
                f"The pipeline job {job.name} may not write to {address!r} when the "
                f"queue runs it. Allowed are PGQUEUE['EXPORT']['path'] and what "
                f"PGQUEUE['SPARK']['destinations'] names: "
                f"{', '.join(allowed) or 'none'}. Add it there, or run it by manage.py "
                f"pgqueue_pipeline."
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


def _addresses(job: PipelineJob, options: Mapping[str, Any]) -> list[str]:
    return [str(options[name]) for name in job.chooses if options[name]]
