"""Projects differ: another admin site, no time zones, another language."""

from __future__ import annotations

from datetime import timedelta
from html import unescape

import pytest
from django.contrib import admin
from django.urls import path

from django_pgqueue.admin import (
    ArchivedJobAdmin,
    BulkActAdmin,
    ConsumerGroupAdmin,
    DeadLetterAdmin,
    FailureAdmin,
    InboxEntryAdmin,
    JobAdmin,
    LaneAdmin,
    MessageAdmin,
    PipelineRunAdmin,
    QueueAdmin,
    ScheduleAdmin,
    ScheduledMessageAdmin,
    SubscriptionAdmin,
    TaskHourAdmin,
    TopicAdmin,
    WorkerAdmin,
    WorkflowAdmin,
)
from django_pgqueue.models import (
    ArchivedJob,
    BulkAct,
    ConsumerGroup,
    DeadLetter,
    Failure,
    InboxEntry,
    Job,
    Lane,
    Message,
    PipelineRun,
    Queue,
    Schedule,
    ScheduledMessage,
    Subscription,
    TaskHour,
    Topic,
    Worker,
    Workflow,
)
from tests.browser.pages import make_rows
from tests.harness.factories import make_dead_letter, make_job

pytestmark = pytest.mark.django_db


class Operations(admin.AdminSite):
    """A site beside, or instead of, Django's."""


site = Operations(name="operations")
site.register(Job, JobAdmin)
site.register(ArchivedJob, ArchivedJobAdmin)
site.register(DeadLetter, DeadLetterAdmin)
site.register(BulkAct, BulkActAdmin)
site.register(Queue, QueueAdmin)
site.register(Lane, LaneAdmin)
site.register(Worker, WorkerAdmin)
site.register(PipelineRun, PipelineRunAdmin)
site.register(TaskHour, TaskHourAdmin)
site.register(Failure, FailureAdmin)
site.register(Schedule, ScheduleAdmin)
site.register(Topic, TopicAdmin)
site.register(Message, MessageAdmin)
site.register(ScheduledMessage, ScheduledMessageAdmin)
site.register(InboxEntry, InboxEntryAdmin)
site.register(Subscription, SubscriptionAdmin)
site.register(ConsumerGroup, ConsumerGroupAdmin)
site.register(Workflow, WorkflowAdmin)

few = Operations(name="few")
few.register(DeadLetter, DeadLetterAdmin)
few.register(TaskHour, TaskHourAdmin)
few.register(Failure, FailureAdmin)
few.register(Topic, TopicAdmin)
few.register(Subscription, SubscriptionAdmin)
lonely = Operations(name="lonely")
lonely.register(DeadLetter, DeadLetterAdmin)
lonely.register(PipelineRun, PipelineRunAdmin)
lonely.register(Schedule, ScheduleAdmin)
lonely.register(Message, MessageAdmin)
lonely.register(ScheduledMessage, ScheduledMessageAdmin)
lonely.register(ConsumerGroup, ConsumerGroupAdmin)
lonely.register(Workflow, WorkflowAdmin)

# Found as the URLs of the project: ROOT_URLCONF names this module.
urlpatterns = [
    path("ops/", site.urls),
    path("few/", few.urls),
    path("lonely/", lonely.urls),
]


def links(html):
    return {part.split('"')[0] for part in unescape(html).split('="/')[1:]}


@pytest.fixture
def own_site(settings, sidebar):
    settings.ROOT_URLCONF = __name__


@pytest.fixture
def without_time_zones(settings):
    settings.USE_TZ = False
    settings.TIME_ZONE = "America/New_York"


def test_every_page_works_in_a_project_that_differs(
    admin_client, own_site, without_time_zones, settings
):
    """
    On a site of its own, and every link stays on it.

    USE_TZ = False: with times of the project's zone; in Polish, too: 1 234 567.
    """
    settings.LANGUAGE_CODE = "pl"
    settings.USE_THOUSAND_SEPARATOR = True
    make_job(id=1_234_567)
    for page in make_rows():
        response = admin_client.get(page.replace("/admin/", "/ops/", 1))

        assert 200 == response.status_code, page
        found = links(response.content.decode())
        assert set() == {link for link in found if link.startswith("admin/")}, page
        assert {link for link in found if link.startswith("ops/")}, page
    html = admin_client.get("/ops/pgqueue/job/").content.decode()
    assert "/1234567/change/" in html
    assert 'value="1234567"' in html


@pytest.mark.parametrize("place", ["ops", "few"])
def test_a_site_of_the_projects_own_leads_to_its_overview(
    admin_client, own_site, place
):
    """First of the app on its index, once, whatever pages of ours it has."""
    html = admin_client.get(f"/{place}/").content.decode()

    assert 1 == html.count(">Overview</a>")
    first = html[html.index('<th scope="row"') :]
    assert f'href="/{place}/pgqueue/?"' in first[: first.index("</a>")]


def test_acts_work_on_a_site_of_the_projects_own(admin_client, own_site):
    """They come back to its list."""
    row = make_dead_letter()

    response = admin_client.post(f"/ops/pgqueue/deadletter/{row.pk}/redrive/")

    assert "/ops/pgqueue/deadletter/" == response.url
    assert Job.objects.filter(pk=row.pk).exists()


def test_what_is_asked_for_all_needs_no_page_of_bulk_acts(admin_client, own_site):
    """A site without it does not lead there; who knows the address comes back."""
    make_dead_letter()
    url = "/few/pgqueue/deadletter/all-redrive/"
    assert url not in admin_client.get("/few/pgqueue/deadletter/").content.decode()
    shown = dict(admin_client.get(url).context["hidden"])["shown"]

    sent = {"reason": "bank is back", "shown": shown, "typed": "1"}
    response = admin_client.post(url, sent)

    assert "/few/pgqueue/deadletter/" == response.url
    assert 1 == BulkAct.objects.count()


@pytest.mark.parametrize("some", [few, lonely], ids=lambda some: some.name)
def test_a_site_may_have_some_of_the_pages(admin_client, own_site, some):
    """What would lead to the others is left out."""
    place = some.name
    shown = tuple(
        f"/admin/pgqueue/{model._meta.model_name}/" for model in some._registry
    )
    for page in make_rows():
        if page.startswith(shown):
            response = admin_client.get(page.replace("/admin/", f"/{place}/", 1))

            assert 200 == response.status_code, page
            found = links(response.content.decode())
            assert {place} >= {link.split("/")[0] for link in found} - {"static", ""}, (
                page
            )


def test_pages_work_from_right_to_left(admin_client, settings):
    """With Django's styles for it: the overview, a list and a row."""
    settings.LANGUAGE_CODE = "ar"
    row = make_job()
    for page in ("", "job/", f"job/{row.pk}/change/"):
        response = admin_client.get(f"/admin/pgqueue/{page}")
        assert 200 == response.status_code, page
        assert 'dir="rtl"' in response.content.decode(), page


def test_times_are_told_without_time_zones(admin_client, without_time_zones):
    """The time of an error is in the zone of all other times."""
    at = "2026-11-20T20:10:00+00:00"
    row = make_job(
        run_after=timedelta(hours=5, minutes=1), errors=[{"kind": "error", "at": at}]
    )

    html = admin_client.get(f"/admin/pgqueue/job/{row.pk}/change/").content.decode()

    assert "2026-11-20 15:10:00" in html
    assert "(in 5 h)" in html


def test_dead_letters_are_paged_without_time_zones(admin_client, without_time_zones):
    """A place in the list is a time without a zone there."""
    ids = [make_dead_letter().pk for _ in range(60)]
    url = "/admin/pgqueue/deadletter/"

    first = admin_client.get(url).context["cl"]
    second = admin_client.get(url + first.older_url).context["cl"]

    shown = [row.pk for row in [*first.result_list, *second.result_list]]
    assert ids[::-1] == shown


def test_progress_is_no_local_number(admin_client, settings):
    """Browsers read 0.5, and not 0,5."""
    settings.LANGUAGE_CODE = "de"
    row = make_job(progress={"done": 0.5, "total": 1.25})

    html = admin_client.get(f"/admin/pgqueue/job/{row.pk}/change/").content.decode()

    assert '<progress value="0.5" max="1.25">' in html
