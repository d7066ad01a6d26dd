"""Logs: fields of the job, for the lines that its task writes."""

from __future__ import annotations

import logging

from django_pgqueue import telemetry


class JobFields(logging.Filter):
    """
    Gives the record of a line that a task writes the fields of its job.

    They are ``job_id``, ``task``, ``queue``, ``attempt`` and ``trace_id``, as the lines
    of django_pgqueue have them. One that the record has is kept; a line that no task
    writes gets none. For a handler in LOGGING; it keeps no line back.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add them; return True."""
        job = telemetry.current_job.get()
        if job is not None:
            for name, value in telemetry.fields_of(job).items():
                record.__dict__.setdefault(name, value)
        return True
