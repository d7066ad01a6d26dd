"""
DSN: where the database is, from the environment or from a file.

Never from an option: options stand in plans, in the UI and in its REST API, where a
password would be read by whoever may look at a query. An option names the place
instead: an environment variable, or a file as a secret is mounted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from django_pgqueue.exceptions import SparkError
from django_pgqueue.spark.java import environment

DEFAULT_VARIABLE = "PGQUEUE_DSN"

# No file of a DSN is longer; a longer one is the wrong file.
FILE_BYTES_MAX = 10_000

# What a DSN may hide, as a URL and as key=value pairs.
PASSWORD = re.compile(
    r"//[^:/@]*:(?P<url>[^@/]+)@"
    r"|[?&\s]?\b(?:ssl)?password\s*=\s*(?:'(?P<quoted>(?:[^'\\]|\\.)*)'|(?P<bare>[^\s&]+))"
)


@dataclass(frozen=True, slots=True)
class DsnSource:
    """Where a DSN is read: on the driver to plan, and on each executor to read."""

    variable: str = DEFAULT_VARIABLE
    file: str | None = None

    def read(self, environ: Mapping[str, str] = os.environ) -> str:
        """
        Return the DSN, by default as this process finds it.

        Raises:
            SparkError: It is not there, or is no DSN. The text never shows it.
        """
        found = self._from_file() if self.file else environ.get(self.variable, "")
        dsn = found.strip()
        where = f"The file {self.file}" if self.file else f"${self.variable}"
        if not dsn:
            raise SparkError(
                f"{where} is empty or not set where Spark's Python runs. Set it for "
                f"the driver and for every executor, before the session starts, to "
                f"postgresql://USER@HOST/DATABASE."
            )
        if not dsn.startswith(("postgresql://", "postgres://")) and "=" not in dsn:
            raise SparkError(
                f"{where} holds no DSN: write "
                f"postgresql://USER@HOST/DATABASE, or pairs such as "
                f"'host=HOST dbname=DATABASE'."
            )
        return dsn

    def _from_file(self) -> str:
        assert self.file is not None
        path = Path(self.file)
        try:
            if path.stat().st_size > FILE_BYTES_MAX:
                raise SparkError(
                    f"The file {self.file} has more than {FILE_BYTES_MAX:,} bytes: it "
                    f"is no file with a DSN alone."
                )
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            problem = getattr(error, "strerror", None) or "it is not UTF-8"
            raise SparkError(
                f"The file {self.file}, which the option dsnFile names, cannot be "
                f"read where Spark's Python runs: {problem}."
            ) from None


def find_dsn(spark: Any, source: DsnSource) -> str:
    """
    Return the DSN as Spark's own processes find it.

    A session of this package's has it in the environment of its Java process alone.

    Raises:
        SparkError: It is not there.
    """
    said = environment(spark, source.variable)
    return source.read({**os.environ, source.variable: said} if said else os.environ)


def without_secrets(text: str, dsn: str) -> str:
    """
    Return *text*, of a driver's error, without what *dsn* hides.

    A DSN that libpq cannot read is quoted in its errors, whole or in part; then nothing
    of the text is safe.
    """
    secrets = set()
    for found in PASSWORD.finditer(dsn):
        secret = found["url"] or found["quoted"] or found["bare"] or ""
        secrets |= {secret, unquote(secret)} - {""}
    if dsn in text or "connection info string" in text or "URI" in text:
        return "it is no connection string that PostgreSQL can read"
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "[redacted]")
    return text
