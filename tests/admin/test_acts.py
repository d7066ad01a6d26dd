"""
Every act, once over all nouns: who may do it, that it asks first, and that it is noted.

Each request is crafted, as by somebody who knows the address. What an act comes to is
tested beside its noun.
"""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission

from django_pgqueue.models import Topic
from django_pgqueue.operators import pausable
from tests.admin.acts import (
    ACTS,
    ALL,
    AT_ONCE,
    CONFIRMED,
    PAGES,
    REPEATED,
    make,
    snapshot,
    to_view,
)
from tests.log.rows import make_subscription

pytestmark = pytest.mark.django_db


def test_every_permission_is_known_here():
    """One that is added needs a line in acts.py."""
    existing = Permission.objects.filter(content_type__app_label="pgqueue")

    assert ALL == set(existing.values_list("codename", flat=True))


@pytest.mark.parametrize("noun, name, needed", ACTS)
def test_an_act_needs_its_permissions(staff, noun, name, needed):
    """
    With all permissions but one of those, nothing is done, asked, offered or noted.

    With them alone it is offered, asks first where it should, is done and noted.
    """
    key = make(noun, name)
    url = f"/admin/pgqueue/{noun}/"
    row = f"{url}{key}/{name}/"
    ticked = {"action": name, "_selected_action": [key], **CONFIRMED}
    before = snapshot()

    for lacking in {*to_view(noun), needed}:
        client = staff(*ALL - {lacking})
        answers = [client.post(row, CONFIRMED), client.post(url, ticked)]
        if name not in AT_ONCE:
            answers.append(client.get(row))
        assert {403} == {answer.status_code for answer in answers}, lacking
        if lacking == needed:
            html = client.get(f"{url}{key}/change/").content.decode()
            assert f'"{row}"' not in html

    client = staff(*to_view(noun), needed)
    assert f'"{row}"' in client.get(f"{url}{key}/change/").content.decode()
    form = client.get(url).context["action_form"]
    in_menu = {choice for choice, _ in form.fields["action"].choices} if form else set()
    acts_here = {name for each, name, may in ACTS if (each, may) == (noun, needed)}
    assert in_menu - {""} <= acts_here
    assert (405 if name in AT_ONCE else 200) == client.get(row, CONFIRMED).status_code
    assert before == snapshot()
    if name not in AT_ONCE:
        assert 200 == client.post(row).status_code
        assert before == snapshot()

    done = [client.post(row, CONFIRMED), client.post(url, ticked)]
    assert {200, 302} >= {answer.status_code for answer in done}
    assert before != snapshot()
    assert (2 if name in REPEATED else 1) == LogEntry.objects.count()


SCHEDULE = {
    "name": "evening",
    "task": "tests.app.tasks.noop",
    "args": "{}",
    "expression": "0 18 * * *",
    "every": "",
    "tz": "UTC",
    "catch_up": "one",
    "overlap": "skip",
    "jitter": "0s",
    "queue": "",
    "priority": "",
    "revision": "0",
    "save": "1",
}
ARGUMENTS = {"args": "[1]", "kwargs": "{}"}

# Forms of their own: noun, path, what is sent, and the permissions beside "view".
FORMS = [
    ("job", "{key}/edit/", {**ARGUMENTS, "save": "1"}, {"edit", "view_payload"}),
    ("deadletter", "{key}/edit/", {**ARGUMENTS, "save": "1"}, {"edit", "view_payload"}),
    (
        "deadletter",
        "{key}/edit/",
        {**ARGUMENTS, "redrive": "1"},
        {"edit", "view_payload", "retry"},
    ),
    ("schedule", "new/", SCHEDULE, {"add_schedule"}),
    ("schedule", "{key}/edit/", SCHEDULE, {"change_schedule", "view_payload"}),
    (
        "consumergroup",
        "{key}/seek/",
        {"way": "latest", "typed": "orders/stats", "seek": "1"},
        {"seek"},
    ),
    ("topic", "{key}/replay/", {"replay": "1"}, {"seek"}),
    ("pipelinerun", "run/?job=metrics", {"option-keep": "9d"}, {"run_pipeline"}),
]


@pytest.mark.parametrize("noun, path, sent, needed", FORMS)
def test_a_form_needs_each_of_its_permissions(staff, noun, path, sent, needed):
    """Else it is neither shown nor offered nor taken, nor without Django's token."""
    key = make(noun, "")
    url = f"/admin/pgqueue/{noun}/{path.format(key=key)}"
    client = staff(f"view_{noun}", *needed)
    form = client.get(url).context["form"]
    data = {**sent, **({"seen": form.initial["seen"]} if "edit" in needed else {})}
    if noun == "topic":
        name = Topic.objects.get(pk=key).name
        make_subscription(pattern=name, topic=name, queue="mail", task="shop.mail")
        data.update(to=f"subscription:mail/{name}/shop.mail", typed=name)
    before = snapshot()
    shown = url.split("?", maxsplit=1)[0]

    for lacking in {f"view_{noun}", *needed}:
        without = staff(*ALL - {lacking})
        # Who may edit, but not see arguments, comes back to the row with a message.
        refused = 302 if lacking == "view_payload" else 403
        assert refused == without.post(url, data).status_code, lacking
        if lacking != "retry":
            assert refused == without.get(url).status_code, lacking
            for page in (f"/admin/pgqueue/{noun}/", url.replace("edit", "change")):
                html = without.get(page).content.decode()
                assert f'"{shown}' not in html
    strict = staff(*ALL, enforce_csrf_checks=True)
    assert 403 == strict.post(url, data).status_code
    assert before == snapshot()
    assert 302 == client.post(url, data).status_code
    assert before != snapshot()
    assert (2 if "redrive" in sent else 1) == LogEntry.objects.count()


def test_acts_need_the_token_of_their_form(staff):
    """Another site's form has none: ticked rows, the button of one, and all."""
    key = make("deadletter", "")
    url = "/admin/pgqueue/deadletter/"
    client = staff(*ALL, enforce_csrf_checks=True)
    before = snapshot()

    for path, data in (
        (url, {"action": "redrive", "_selected_action": [key]}),
        (f"{url}{key}/redrive/", {}),
        (f"{url}{key}/purge/", CONFIRMED),
        (f"{url}all-redrive/", {"typed": "1", "reason": "x"}),
    ):
        assert 403 == client.post(path, data).status_code, path
    assert before == snapshot()


@pytest.mark.parametrize(
    "noun, kind",
    [
        ("queue", pausable.QUEUE),
        ("schedule", pausable.SCHEDULE),
        ("consumergroup", pausable.GROUP),
        ("subscription", pausable.SUBSCRIPTION),
    ],
)
def test_a_pause_keeps_who_and_why_until_it_ends(admin_client, noun, kind):
    """In the row, its list and the log; a second pause changes nothing."""
    key = make(noun, kind.begin.name)
    url = f"/admin/pgqueue/{noun}/"

    def told(turn, **form):
        path = f"{url}{key}/{turn.name}/"
        answer = admin_client.post(path, {"confirmed": "1", **form}, follow=True)
        return [str(message) for message in answer.context["messages"]]

    def paused():
        return PAGES[noun].objects.filter(pk=key).values_list(*kind.columns).get()

    assert [kind.begin.done % {"count": 1}] == told(kind.begin, reason="night off")
    assert [kind.begin.left % {"count": 1}] == told(kind.begin, reason="other")
    at, *who_and_why = paused()
    assert at is not None
    assert ["admin", "night off"] == who_and_why
    assert "night off" in admin_client.get(url).content.decode()

    assert [kind.end.done % {"count": 1}] == told(kind.end)
    assert [kind.end.left % {"count": 1}] == told(kind.end)
    assert (None, None, None) == paused()
    why = {"by": "admin", "reason": "night off"}
    assert [kind.begin.entry % why, kind.end.entry % why] == [
        entry.get_change_message() for entry in LogEntry.objects.order_by("pk")
    ]
