"""Prometheus: the expressions of the dashboard and of the alerts."""

from __future__ import annotations

import json
import re
from pathlib import Path

REFERENCE = Path(__file__).parent.parent.parent / "docs" / "reference"
DASHBOARD = REFERENCE / "grafana-dashboard.json"
RULES = REFERENCE / "prometheus-rules.yml"

RULE = re.compile(r"- alert: (\w+)\n +expr: (.*)\n")


def panels() -> dict[str, list[str]]:
    """Return the queries of each panel, by its title."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return {
        panel["title"]: [target["expr"] for target in panel["targets"]]
        for panel in dashboard["panels"]
    }


def alerts() -> dict[str, str]:
    """Return what each alert compares, by its name."""
    return dict(RULE.findall(RULES.read_text(encoding="utf-8")))


def as_asked(query: str, seconds: int = 10) -> str:
    """Return a query as Grafana sends it, of all queues and the last *seconds*."""
    return query.replace("$__rate_interval", f"{seconds}s").replace("$queue", ".*")
