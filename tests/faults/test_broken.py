"""The builds that lack a protection: whether they still can be made."""

from __future__ import annotations

import pytest

from tests.faults.broken import BUILDS
from tests.faults.build import REPOSITORY

EDITS = [
    pytest.param(edit, id=f"{name}-{number}")
    for name, build in BUILDS.items()
    for number, edit in enumerate(build.edits)
]


@pytest.mark.parametrize("edit", EDITS)
def test_what_a_broken_build_changes_is_in_the_code(edit):
    """Found in seconds, where the slow tests that need the build take minutes."""
    text = (REPOSITORY / "django_pgqueue" / edit.file).read_text()

    assert edit.times == text.count(edit.old)
    assert edit.old != edit.new
