"""Logs: fields of the job, for the lines that its task writes."""

from __future__ import annotations

import logging

from django_pgqueue import telemetry


class JobFields(logging.Filter):
    """
    Gives the record of a line that a task writes the fields of its job.

    They are ``job_id``, ``task``, ``queue``, ``attempt`` and ``trace_id``; of a batch
    of a consumer group ``task``, ``queue``, ``topic``, ``group`` and ``partition``. One
    that the record has is kept; a line that no task writes gets none. For a handler in
    LOGGING; it keeps no line back.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add them; return True."""
        current = telemetry.current.get()
        if current is not None:
            fields_of, *what = current
            for name, value in fields_of(*what).items():
                record.__dict__.setdefault(name, value)
        return True
