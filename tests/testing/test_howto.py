"""
The page "test your tasks" is its own test: what it defines is collected here.

A block that begins with the name of a file is that module; the others are test files of
a project, and are run as such.
"""

from __future__ import annotations

import re

import pytest

from django_pgqueue.topics import consume as consuming
from tests.docs.samples import HOME, ROOT, module_of, samples_of

PAGE = ROOT / "docs" / "howto" / "test-your-tasks.md"


def load() -> list[str]:
    """Make the modules of the page; return its tests by name, found or not."""
    names = []
    for sample in samples_of(PAGE):
        is_test = sample.module == HOME
        sample.run(globals() if is_test else module_of(sample.module))
        source = sample.source
        names += re.findall(r"^class (\w+)|^def (test_\w+)", source, re.MULTILINE)
    return [one or other for one, other in names]


FOUND = load()

# Declared while these tests run and not beside others, which look at all groups.
GROUPS = {
    name: consuming._declared.pop(name)
    for name, consumer in list(consuming._declared.items())
    if consumer.task.name.startswith("accounts.")
}


@pytest.fixture(autouse=True)
def _groups(monkeypatch):
    monkeypatch.setattr(consuming, "_declared", {**consuming._declared, **GROUPS})


# The page speaks the Django of all supported versions; newer ones have new words.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
]


def test_the_page_has_tests():
    """Eight classes and three functions, each under a name of its own."""
    assert 11 == len(set(FOUND)) == len(FOUND)
    assert all(callable(globals()[name]) for name in FOUND)


@pytest.mark.django_db
def test_the_message_in_the_page_is_the_message():
    """But for the ids."""
    from accounts.tasks import remind, welcome

    from django_pgqueue.testing import assert_enqueued

    job = welcome.delay(7)
    remind.delay(7)
    with pytest.raises(AssertionError) as caught:
        assert_enqueued(welcome, user_id=8, queue="mail")
    page = PAGE.read_text(encoding="utf-8")
    told = re.search(r"```text\n(.*?)\n```", page, re.DOTALL)

    assert told
    assert told[1] == str(caught.value).replace(f"job {job.id}:", "job 41:")
