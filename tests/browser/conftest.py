"""A real browser, on a real server of this project's pages under a strict policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.servers.basehttp import ThreadedWSGIServer
from django.db import connections
from django.test import Client
from django.test.testcases import LiveServerThread
from playwright.sync_api import Page, expect, sync_playwright

from tests.harness.system import require_system
from tests.harness.worker_process import start_worker, the_ledger

__all__ = ["site", "start_worker", "the_ledger"]

# Milliseconds; five seconds, as is usual, are short on a machine that is busy.
expect.set_options(timeout=20_000)

# Without these, Chromium talks to hosts of its maker at every start.
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class ThreadsEnd(ThreadedWSGIServer):
    """Its threads have ended, and their connections to the database, when it has."""

    daemon_threads = False


class Server(LiveServerThread):
    """A server for one test."""

    server_class = ThreadsEnd


@dataclass
class Site:
    """The site as a member of staff sees it, and what went wrong in the browser."""

    url: str
    page: Page
    # Dialogs, errors on the console (violations of the policy are among them), pages
    # and files that could not be had.
    wrong: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Go to *path* and wait until everything is there."""
        self.page.goto(self.url + path, wait_until="load")
        return self.page


@pytest.fixture
def site(monkeypatch: Any, transactional_db: None, settings: Any) -> Iterator[Site]:
    """A superuser's browser on a live server; what goes wrong there fails the test."""
    chromium = require_system(
        "chromium", "chromium-browser", "google-chrome", reason="pages are looked at"
    )
    settings.MIDDLEWARE = [
        "tests.browser.policy.content_security_policy",
        *settings.MIDDLEWARE,
        "django.middleware.csrf.CsrfViewMiddleware",
    ]
    client = Client()
    client.force_login(User.objects.create_superuser("ada", password=None))
    session = client.cookies[settings.SESSION_COOKIE_NAME]
    server = Server("127.0.0.1", StaticFilesHandler, connections_override={})
    server.start()
    server.is_ready.wait()
    if server.error:
        raise server.error
    # Playwright's loop runs in this thread; Django takes that for async code.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    with sync_playwright() as playwright:
        # One for each test: its loop must not run while other tests do.
        browser = playwright.chromium.launch(executable_path=str(chromium), args=QUIET)
        site = Site(f"http://127.0.0.1:{server.port}", browser.new_page())
        cookie = {"name": session.key, "value": session.value, "url": site.url}
        site.page.context.add_cookies([cookie])
        watch(site.page, site.wrong)
        yield site
        browser.close()
        # Those that the test opened while Playwright's loop was running: its own.
        connections.close_all()
    server.terminate()
    server.join()
    assert [] == site.wrong


def watch(page: Page, wrong: list[str]) -> None:
    """Note in *wrong* whatever a page may not do."""

    def dialog(opened: Any) -> None:
        wrong.append(f"dialog: {opened.message}")
        opened.dismiss()

    page.on("dialog", dialog)
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on(
        "console",
        lambda said: (
            wrong.append(f"console: {said.text} ({page.url})")
            if said.type in ("error", "warning")
            else None
        ),
    )
    page.on(
        "response",
        lambda response: (
            wrong.append(f"{response.status}: {response.url}")
            if response.status >= 400
            else None
        ),
    )
