"""Names of numbers are a contract: the pages and the code have the same ones."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from django.db import connection
from prometheus_client.parser import text_string_to_metric_families

from django_pgqueue.findings.overview import Overview
from django_pgqueue.pipeline.exports import note
from django_pgqueue.prometheus.families import ENDS, of_fleet, of_worker
from django_pgqueue.prometheus.text import answer
from django_pgqueue.worker.supervise.health import State
from django_pgqueue.worker.tally import Series, Tally
from tests.harness.factories import (
    make_dead_letter,
    make_group,
    make_job,
    make_position,
    make_topic,
)
from tests.harness.prometheus import REFERENCE, RULES, alerts, as_asked, panels
from tests.harness.system import require_system

SELECTOR = re.compile(r"\b(pgqueue_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r"(\w+)=~?\"")
GROUPED = re.compile(r"\bby \(([^)]*)\)")


@pytest.fixture
def told(db, settings):
    """Return the labels of every number, by its name, of a scrape of everything."""
    settings.PGQUEUE = {"QUEUES": {"mail": {"depth_max": 5}}}
    tally = Tally()
    series = tally.series["mail", "shop.send"] = Series()
    series.ends.update(ENDS)
    tally.messages["consumed"] = 1
    make_job(queue="mail")
    make_dead_letter()
    make_position(make_group(make_topic()))
    with connection.cursor() as cursor:
        note(cursor, "/srv/log", {"orders": 1}, run=1)
        seen = Overview(cursor)
    states = {state.name.lower(): 1 for state in State}
    _, text = answer([*of_worker(tally, states), *of_fleet(seen)], "")
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
        # Of some there are no numbers here, but what they are is told.
        found.setdefault(family.name, set())
    return found


def test_the_table_has_every_number_and_no_other(told):
    """With the labels that it has."""
    page = (REFERENCE / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(pgqueue_\w+)` \| \w+ \| ([^|]*)\|", page, re.MULTILINE)
    documented = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    suffixes = re.compile(r"_(bucket|count|sum|created)$")
    counters = {name.removesuffix("_total") for name in told if name.endswith("_total")}
    existing = {suffixes.sub("", name) for name in told} - counters

    assert existing == set(documented)
    for name, labels in documented.items():
        found = told.get(name) or told.get(f"{name}_bucket", set()) - {"le"}
        assert not found or labels == found, name


def expressions():
    """Return what the dashboard and the alerts ask for."""
    return [
        *(as_asked(query) for queries in panels().values() for query in queries),
        *alerts().values(),
    ]


def test_every_expression_can_be_asked(told):
    """What it selects, compares and groups by is told."""
    found = expressions()
    assert 30 <= len(found)
    for text in found:
        selected = SELECTOR.findall(text)
        assert selected, text
        known = set()
        for name, matchers in selected:
            assert name in told, (name, text)
            assert set(MATCHER.findall(matchers)) <= told[name], (name, text)
            known |= told[name]
        for labels in GROUPED.findall(text):
            assert {label.strip() for label in labels.split(",")} <= known, text


def test_prometheus_can_read_the_alerts_and_the_queries_of_the_dashboard(tmp_path):
    """promtool checks the alerts as they are, and each query as a rule."""
    promtool = require_system("promtool", reason="checks expressions")
    queries = [
        {"record": "panel:query", "expr": text, "labels": {"number": str(number)}}
        for number, text in enumerate(expressions())
    ]
    dashboard = tmp_path / "dashboard.yml"
    # JSON is YAML.
    dashboard.write_text(json.dumps({"groups": [{"name": "d", "rules": queries}]}))

    for rules in (RULES, dashboard):
        subprocess.run([promtool, "check", "rules", rules], check=True, timeout=60)
