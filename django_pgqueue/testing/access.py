"""Access: what to do when a test may not use the database that holds the jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django_pgqueue.conf import get_settings

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
