"""The overview: what needs attention, what waits, runs, failed, and who is stuck."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.admin import AdminSite
from django.db import OperationalError
from django.db.models import Model
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgqueue.admin import moments, payload
from django_pgqueue.admin.acting import (
    MODELS,
    STATEMENT_SECONDS_MAX,
    is_too_slow,
    limited,
    may_view,
)
from django_pgqueue.admin.cells import badge, link_on, name
from django_pgqueue.admin.metrics import of_workers
from django_pgqueue.admin.subscriptions import group_badge
from django_pgqueue.findings.look import DEAD_LETTERS_MAX
from django_pgqueue.findings.overview import Overview
from django_pgqueue.findings.registry import Finding
from django_pgqueue.log.groups import GroupRow
from django_pgqueue.models import (
    ConsumerGroup,
    DeadLetter,
    Job,
    Queue,
    Schedule,
    Worker,
    Workflow,
)
from django_pgqueue.operators import human
from django_pgqueue.operators.human import in_utc
from django_pgqueue.operators.states import Behind
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.tasks import database
from django_pgqueue.worker.serving import is_alive

# Between two renewals; and after the database took too long.
RENEWED_SECONDS, RENEWED_SECONDS_SLOW = 5, 30

# Lines of each list: the tasks with most dead letters, the groups that are furthest
# behind, the schedules and the messages that are next.
LINES_MAX = 5

# Where the rows of a finding are listed, by its check, and what that list is narrowed
# to. Those of one queue are narrowed to that as well.
LISTS: Mapping[str, tuple[type[Model], Mapping[str, str]]] = {
    "unserved": (Job, {"state": "ready"}),
    "oldest_ready": (Job, {"state": "ready"}),
    "suspects": (Job, {"state": "ready"}),
    "paused": (Queue, {}),
    "heartbeats": (Worker, {}),
    "dead_letters": (DeadLetter, {"age": "24h"}),
    "sagas": (Workflow, {"state": "compensating"}),
    "ticks": (Schedule, {"state": "overdue"}),
    "schedules": (Schedule, {"state": "faulty"}),
    "schedule_tasks": (Schedule, {}),
    "groups_unserved": (ConsumerGroup, {}),
    "groups_halted": (ConsumerGroup, {}),
}


# Of a finding: the colour of its badge, and its word.
COLOURS = {"error": "failed", "warning": "stale"}
LABELS = {"error": gettext_lazy("error"), "warning": gettext_lazy("warning")}


# A label, the number that it names, and what is said of it.
Tile = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Card:
    """A short list: a heading, the heads of its columns, and their lines."""

    key: str
    title: str
    heads: Sequence[str]
    lines: Sequence[Sequence[Any]]
    empty: str
    more: str = ""


def overview(request: HttpRequest) -> dict[str, Any]:
    """Return what the page shows, to those who may see some of it; else nothing."""
    parts = [part for part, model in MODELS.items() if may_view(request, model)]
    if not parts:
        return {}
    try:
        with limited(Plans.IN_ORDER), database.cursor() as cursor:
            now = Overview(cursor, parts, tells_keys=payload.may_see(request))
            page = Page(request, site_of(request), now)
            ended = None
            if "jobs" in parts:
                ended = of_workers(cursor, request, now.clock, page.link)
    except OperationalError as error:
        if not is_too_slow(error):
            raise
        return {
            "is_too_slow": True,
            "seconds": STATEMENT_SECONDS_MAX,
            "live_seconds": RENEWED_SECONDS_SLOW,
        }
    return {
        "ended": ended,
        "live_seconds": RENEWED_SECONDS,
        "as_of": now.clock,
        "as_of_text": moments.absolute(now.clock),
        "attention": page.attention(),
        "tiles": page.tiles(),
        "cards": page.cards(),
    }


def site_of(request: HttpRequest) -> AdminSite:
    """Return the admin site that answers: a project may have one of its own."""
    assert request.resolver_match is not None
    # Django sets it on every view of a site.
    site: AdminSite = request.resolver_match.func.admin_site  # type: ignore[attr-defined]
    return site


class Page:
    """What of an overview one user sees, with links to the pages of one site."""

    def __init__(self, request: HttpRequest, site: AdminSite, now: Overview) -> None:
        self.request = request
        self.site = site
        self.now = now

    def attention(self) -> list[tuple[str, Finding, str]]:
        """Return the findings, the worst first: each with its badge and a link."""
        return [
            (
                badge(COLOURS[each.severity], LABELS[each.severity]),
                each,
                self._list_of(each),
            )
            for each in self.now.findings
        ]

    def tiles(self) -> list[Tile]:
        """Return the numbers, each a link to what it counts."""
        return [*self._jobs(), *self._dead(), *self._workers(), *self._groups()]

    def cards(self) -> list[Card]:
        """Return the short lists."""
        cards = (self._died(), self._held(), self._behind(), self._next())
        return [card for card in cards if card is not None]

    # Numbers ---------------------------------------------------------------------

    def _jobs(self) -> list[Tile]:
        if "jobs" not in self.now.parts:
            return []
        labels = {
            "ready": _("Ready"),
            "running": _("Running"),
            "retrying": _("Retrying"),
            "scheduled": _("Scheduled"),
            "parked": _("Parked"),
        }
        return [
            (
                label,
                self.link(Job, self._total(state), state=state),
                self._oldest() if state == "ready" else "",
            )
            for state, label in labels.items()
        ]

    def _total(self, state: str) -> str:
        """Return how many jobs of a *state* there are; "10,000+" where more may be."""
        queues = self.now.queues
        number = sum(getattr(each, state) for each in queues)
        return human.count(number, is_more=any(each.is_more(state) for each in queues))

    def _oldest(self) -> str:
        """Say how long the oldest ready job has been due, and in which queue."""
        waits = [
            (each.oldest_ready_seconds, each.name)
            for each in self.now.queues
            if each.oldest_ready_seconds is not None
        ]
        if not waits:
            return ""
        seconds, queue = max(waits)
        where = self.link(Job, name(queue), queue=queue, state="ready")
        return format_html(_("oldest: {}, in {}"), human.age(seconds), where)

    def _dead(self) -> list[Tile]:
        if "dead_letters" not in self.now.parts:
            return []
        of_day = sum(each.jobs for each in self.now.died)
        of_hour = sum(each.in_hour for each in self.now.died)
        is_more = of_day >= DEAD_LETTERS_MAX
        day = human.count(of_day, is_more=is_more)
        hour = human.count(of_hour, is_more=is_more and of_hour == of_day)
        return [
            (
                _("Dead in 24 h"),
                self.link(DeadLetter, day, age="24h"),
                format_html(
                    _("in the last hour: {}"), self.link(DeadLetter, hour, age="1h")
                ),
            )
        ]

    def _workers(self) -> list[Tile]:
        if "workers" not in self.now.parts:
            return []
        rows = self.now.workers
        silent = sum(1 for row in rows if not is_alive(row.silent_seconds))
        told = ""
        if silent:
            told = format_html(_("silent: {}"), self.link(Worker, f"{silent:,}"))
        alive = f"{len(rows) - silent:,}"
        return [(_("Workers alive"), self.link(Worker, alive), told)]

    def _groups(self) -> list[Tile]:
        groups = self._lags()
        if not groups:
            return []
        number = human.count(
            sum(behind.unread for _row, behind in groups),
            is_more=any(behind.is_more for _row, behind in groups)
            or len(self.now.groups) > len(groups),
        )
        ages = [behind.seconds for _row, behind in groups if behind.seconds is not None]
        told = ""
        if ages:
            told = _("oldest: %(age)s") % {"age": human.age(max(ages))}
        return [(_("Unread by groups"), self.link(ConsumerGroup, number), told)]

    def _lags(self) -> Sequence[tuple[GroupRow, Behind]]:
        """Return the groups, those that are furthest behind first."""
        if "groups" not in self.now.parts:
            return []
        return sorted(
            self.now.behind,
            key=lambda it: (-(it[1].seconds or 0.0), -it[1].unread, str(it[0])),
        )

    # Lists -----------------------------------------------------------------------

    def _died(self) -> Card | None:
        if "dead_letters" not in self.now.parts:
            return None
        tasks: dict[str, Counter[str]] = defaultdict(Counter)
        for each in self.now.died:
            tasks[each.task].update(hour=each.in_hour, day=each.jobs)
        most = sorted(tasks.items(), key=lambda it: (-it[1]["day"], it[0]))

        def number(task: str, count: int, age: str) -> str:
            text = f"{count:,}"
            return self.link(DeadLetter, text, task=task, age=age) if count else text

        return Card(
            "died",
            _("Dead, by task"),
            (_("Task"), _("1 h"), _("24 h")),
            [
                (
                    name(task),
                    number(task, jobs["hour"], "1h"),
                    number(task, jobs["day"], "24h"),
                )
                for task, jobs in most[:LINES_MAX]
            ],
            _("None in 24 h."),
            self._more(DeadLetter, len(most), age="24h"),
        )

    def _held(self) -> Card | None:
        if not {"jobs", "workers"} <= {*self.now.parts}:
            return None
        held = self.now.held
        return Card(
            "held",
            _("Running for longest"),
            (_("Job"), _("Worker"), _("For")),
            [
                (
                    self.link(Job, name(f"{job.task} #{job.id}"), job.id),
                    self.link(Worker, name(job.worker), job.worker),
                    ""
                    if job.leased_at is None
                    else moments.since(in_utc(job.leased_at), self.now.clock),
                )
                for job in held[:LINES_MAX]
            ],
            _("No worker holds a job."),
            self._more(Job, len(held), state="running"),
        )

    def _behind(self) -> Card | None:
        groups = self._lags()
        if not groups:
            return None
        return Card(
            "behind",
            _("Groups, by lag"),
            (_("Group"), _("State"), _("Unread"), _("Oldest")),
            [
                (
                    self.link(ConsumerGroup, name(str(row)), row.id),
                    group_badge(behind),
                    self.link(ConsumerGroup, behind.shown, row.id),
                    human.age(behind.seconds),
                )
                for row, behind in groups[:LINES_MAX]
            ],
            "",
            self._more(ConsumerGroup, len(self.now.groups)),
        )

    def _next(self) -> Card | None:
        if "schedules" not in self.now.parts or not self.now.schedules:
            return None
        ticking = [row for row in self.now.schedules if row.next_tick is not None]
        return Card(
            "next",
            _("Next schedules"),
            (_("Schedule"), _("Next tick")),
            [
                (
                    self.link(Schedule, name(row.name), row.id),
                    moments.short(row.next_tick, self.now.clock),
                )
                for row in ticking[:LINES_MAX]
            ],
            _("No tick comes any more."),
            self._more(Schedule, len(ticking)),
        )

    # Where -----------------------------------------------------------------------

    def link(
        self,
        model: type[Model],
        text: object,
        key: int | str | None = None,
        /,
        **query: Any,
    ) -> str:
        """Return *text* as a link, where the site has the page and the user may."""
        if not may_view(self.request, model):
            return str(text)
        return link_on(self.site, model, text, key, **query)

    def _more(self, model: type[Model], count: int, **query: str) -> str:
        """Return a link to all of a list of which some are left out."""
        return self.link(model, _("Show all"), **query) if count > LINES_MAX else ""

    def _list_of(self, finding: Finding) -> str:
        """Return a link to the rows that a finding tells of."""
        model, query = LISTS[finding.check]
        if finding.about:
            query = {**query, "queue": finding.about}
        shown = self.link(model, _("Show"), **query)
        return shown if isinstance(shown, SafeString) else ""
