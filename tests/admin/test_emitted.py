"""What a job has emitted, on its page."""

from __future__ import annotations

import pytest

from django_pgqueue.models import Output
from tests.admin.test_permissions import MAKERS

pytestmark = pytest.mark.django_db


def emit(job, *values):
    for number, value in enumerate(values, start=1):
        Output.objects.create(
            job_id=job, sequence=1_000_000 + number, attempt=1, value=value
        )


@pytest.mark.parametrize("page", MAKERS)
def test_the_latest_values_are_shown_on_every_page_of_a_job(staff, page):
    """In their order, escaped, cut, and without what REDACT names."""
    row = MAKERS[page]()
    emit(
        row.pk,
        *(f"word {number:02}" for number in range(18)),
        {"token": "hunter2", "of": "<b>ada</b>"},
        "long" * 1_000,
        "last",
    )
    path = f"/admin/pgqueue/{page}/{row.pk}/change/"

    html = staff(f"view_{page}", "view_payload").get(path).content.decode()

    assert "What it has emitted" in html
    assert "word 00" not in html
    places = [html.index(f"word {number:02}") for number in range(1, 18)]
    assert sorted(places) == places
    assert places[-1] < html.index("long" * 200) < html.index("&quot;last&quot;")
    assert "long" * 251 not in html
    assert "hunter2" not in html
    assert "&lt;b&gt;ada" in html
