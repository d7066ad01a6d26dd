"""Access: the jobs that a test may see, or what to do if it may see none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db.models import Model

from django_pgqueue.conf import get_settings
from django_pgqueue.models import ArchivedJob, DeadLetter, Job

MODELS: tuple[type[Model], ...] = (Job, ArchivedJob, DeadLetter)

# What changes when a job runs.
UNTRIED: dict[str, Any] = {"attempt": 0, "deliveries": 0, "crashes": 0, "errors": []}

SHARED = sorted(
    {field.attname for field in Job._meta.concrete_fields}
    & {field.attname for field in ArchivedJob._meta.concrete_fields}
)


def as_enqueued(row: Model) -> Job:
    """Return what the job of *row* was when it was enqueued, wherever it is now."""
    job = Job(**{**{name: getattr(row, name) for name in SHARED}, **UNTRIED})
    job.visible_at = job.run_after or job.enqueued_at
    job._state.adding = False
    job._state.db = row._state.db
    return job


def latest_id(alias: str) -> int:
    """Return the highest id of any job; 0 when there is none."""
    newest = [
        model._base_manager.using(alias).order_by("-pk").values_list("pk")[:1]
        for model in MODELS
    ]
    return max((pk for (pk,) in newest[0].union(*newest[1:])), default=0)


# How pytest-django begins to say no; Django has a class for it.
PYTEST_SAYS = "Database access not allowed"
DJANGO_SAYS = "DatabaseOperationForbidden"


@contextmanager
def explained(what: str) -> Iterator[None]:
    """
    Say what to do when the block is refused the database.

    Raises:
        RuntimeError: The test may not use the jobs' database; names the way out.
    """
    try:
        yield
    except (AssertionError, RuntimeError) as error:
        if not _is_refusal(error):
            raise
        alias = get_settings().database
        raise RuntimeError(
            f"{what} works on the jobs' rows in database {alias!r}, which this test "
            f"may not use. With unittest, take django.test.TestCase"
            f"{_with_aliases(alias, 'and give it databases = {}')}; with pytest, mark "
            f"the test @pytest.mark.django_db{_with_aliases(alias, '(databases={})')}, "
            f"or ask for the fixture pgqueue."
        ) from error


def _is_refusal(error: BaseException) -> bool:
    return type(error).__name__ == DJANGO_SAYS or str(error).startswith(PYTEST_SAYS)


def _with_aliases(alias: str, text: str) -> str:
    if alias == "default":
        return ""
    space = " " if text.startswith("and") else ""
    return space + text.format(f'["default", "{alias}"]')
