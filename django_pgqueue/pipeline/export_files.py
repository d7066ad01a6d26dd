"""
Export files: whether those of a manifest are there, as far as this host can see.

Retention asks it before it drops a day. A place on a shared or local file system is
looked at; what only Spark can reach, such as an object store, its own runs look at.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from django_pgqueue.pipeline.exports import Files


def local_folder(target: str) -> Path | None:
    """Return the folder that *target* is on this host; None: it is not here."""
    if target.startswith("/"):
        folder = Path(target)
    elif target.lower().startswith("file:"):
        folder = Path(unquote(urlsplit(target).path))
    else:
        return None
    return folder if folder.is_dir() else None


def missing(folder: Path, files: Files) -> str | None:
    """Return the first of *files* that is not in *folder* with its bytes, or None."""
    for file in files:
        path = folder / str(file["path"])
        try:
            is_there = path.stat().st_size == file["bytes"]
        except OSError:
            is_there = False
        if not is_there:
            return str(file["path"])
    return None
