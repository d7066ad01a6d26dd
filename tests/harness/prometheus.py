"""Prometheus: what the dashboard and the alerts ask for, and a server that answers."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Self

from tests.harness.system import require_system
from tests.harness.waiting import wait_for

CONFIGURATION = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: workers
    static_configs: [{{targets: ["127.0.0.1:{target}"]}}]
"""

SECONDS_MAX = 20.0

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


class Prometheus:
    """Debian's, for as long as the block lasts; it looks once a second."""

    def __init__(self, folder: Path, target: int, rules: Path) -> None:
        """
        Write its configuration.

        Args:
            folder: An empty one, for its files.
            target: The port that is scraped.
            rules: A file of alerts.
        """
        binary = require_system("prometheus", reason="runs the queries of dashboards")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        told = CONFIGURATION.format(rules=rules, target=target)
        (folder / "prometheus.yml").write_text(told)
        self._log = folder / "log"
        self._command = [
            str(binary),
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]

    def __enter__(self) -> Self:
        """Start it."""
        with self._log.open("w") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        try:
            wait_for(self._is_ready, SECONDS_MAX, "Prometheus is ready")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that *expression* has now; an error says which it was."""
        asked = urllib.parse.urlencode({"query": expression})
        result: list[dict[str, Any]] = self._ask(f"query?{asked}")["result"]
        return result

    def rules(self) -> list[dict[str, Any]]:
        """Return its alerts."""
        found: list[dict[str, Any]] = []
        for group in self._ask("rules")["groups"]:
            found += group["rules"]
        return found

    def _ask(self, what: str) -> Any:
        url = f"http://127.0.0.1:{self._port}/api/v1/{what}"
        try:
            with urllib.request.urlopen(url, timeout=SECONDS_MAX) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{what}: {error.read().decode()}") from error

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        try:
            url = f"http://127.0.0.1:{self._port}/-/ready"
            with urllib.request.urlopen(url, timeout=SECONDS_MAX):
                return True
        except OSError:
            return False
