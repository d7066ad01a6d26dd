# ruff: noqa: S310 - it opens what the demonstration serves.
"""The post office of example_project: its own tests, its verdict, its demonstration."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from example_project.demo.verdict import Fate, Kill, Verdict, judge
from tests.harness.system import require_system
from tests.harness.waiting import wait_for

CHECKOUT = Path(__file__).resolve().parents[2]

SENT = Fate("sent", "succeeded")
REJECTED = Fate("error", "dead", "rejected")

# From the start to the closing line. The demonstration promises two minutes, alone.
RUN_SECONDS_MAX = 120
# Of the pipeline after it; alone, 35.
PIPELINE_SECONDS_MAX = 180

CLOSING = re.compile(
    r"^accepted 1000, sent 990, dead 10, lost 0, "
    r"repeated (0|\d+ \(ids [\d, ]+, each explained by a kill\))\n"
    r"published 990 \+ 10; counted by jobs 990 \+ 10, "
    r"by a consumer group 990 \+ 10$",
    re.MULTILINE,
)


# The verdict ------------------------------------------------------------------------


def crashed(*workers: str) -> Fate:
    """A mail that was sent in the end, after these workers died of something."""
    return Fate("sent", "succeeded", crashed=workers)


def kill(worker: str, at: float, threads: int = 2) -> Kill:
    return Kill(worker, killed_at=at, dead_at=at + 0.5, threads=threads)


def wrong(verdict: Verdict) -> tuple[list[int], list[int], int]:
    return verdict.lost, verdict.unexplained, len(verdict.findings)


def test_a_run_without_loss_holds():
    """
    Sent, dead and repeated mails are counted; the line says why a repeat is right.
    """
    fates = {1: SENT, 2: REJECTED, 3: crashed("a"), 4: crashed("a", "b")}
    copies = {1: [1.0], 3: [4.9, 6.0], 4: [4.9, 6.0, 8.0]}
    verdict = judge(fates, copies, [kill("a", 5.0), kill("b", 7.0)])
    assert verdict.holds
    assert (
        "accepted 4, sent 3, dead 1, lost 0, repeated 3 "
        "(ids 3, 4, each explained by a kill)" == verdict.line()
    )


@pytest.mark.parametrize(
    "fate",
    [SENT, Fate("claimed", None), Fate("scheduled", "not finished"), Fate(None, None)],
)
def test_a_lost_mail_breaks_the_promise(fate):
    """
    It was accepted, it is not in the mailbox, and it is no dead letter.
    """
    verdict = judge({1: fate, 2: SENT}, {2: [1.0]}, [])
    assert ([1], [], 1) == wrong(verdict)
    assert not verdict.holds
    assert "accepted 2, sent 1, dead 0, lost 1, repeated 0" == verdict.line()


@pytest.mark.parametrize(
    "fate, copies, kills",
    [
        pytest.param(SENT, [1.0, 2.0], [], id="no kill"),
        pytest.param(crashed("a"), [1.0, 2.0], [kill("a", 0.2)], id="before the first"),
        pytest.param(
            crashed("a"), [1.0, 2.0, 2.1], [kill("a", 1.5)], id="one kill, two repeats"
        ),
    ],
)
def test_a_repeat_that_no_kill_explains_breaks_the_promise(fate, copies, kills):
    """
    The job's own worker must have been killed between the two copies, once for each.
    """
    verdict = judge({1: fate}, {1: copies}, kills)
    assert ([], [1], 1) == wrong(verdict)
    assert not verdict.holds
    assert "explained by no kill: 1" in verdict.line()


@pytest.mark.parametrize(
    "fates, copies",
    [
        pytest.param({}, {1: [1.0]}, id="nobody was told"),
        pytest.param({1: REJECTED}, {1: [1.0]}, id="rejected and sent"),
        pytest.param({1: Fate("sent", None)}, {1: [1.0]}, id="job gone"),
    ],
)
def test_what_does_not_fit_together_breaks_the_promise(fates, copies):
    """
    Mailbox, rows and jobs must say the same.
    """
    verdict = judge(fates, copies, [])
    assert 1 == len(verdict.findings)
    assert not verdict.holds


# The example's own tests ------------------------------------------------------------


def manage(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the example's manage.py, on a test database of this process's own."""
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/example_{os.getpid()}")
    return subprocess.run(
        [
            *(sys.executable, "-W", "error::DeprecationWarning"),
            *("example_project/manage.py", *arguments),
        ],
        cwd=CHECKOUT,
        env=os.environ
        | {"DATABASE_URL": url.geturl(), "DJANGO_SETTINGS_MODULE": "config.settings"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.spark
def test_the_tests_of_the_example_pass():
    """
    They run as those of a user's project do: manage.py test, plain TestCases.
    """
    finished = manage("test", "--noinput", "postoffice", "counters", "orders")
    assert 0 == finished.returncode, finished.stderr
    assert re.search(r"^Ran [1-9]\d* tests", finished.stderr, re.MULTILINE)


# The demonstration ------------------------------------------------------------------


@contextmanager
def demonstration(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start `python -m example_project.demo`; it is killed if it is still there."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "example_project.demo", *arguments],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"DEMONSTRATION": log.name},
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def said(log: Path, pattern: str, seconds: float = 30.0) -> re.Match[str]:
    """Wait until the log matches *pattern*."""
    return wait_for(
        lambda: re.search(pattern, log.read_text(), re.MULTILINE),
        timeout=seconds,
        what=f"{pattern} in {log.read_text()}",
    )


def processes_of(log: Path) -> list[str]:
    """Return the command lines of everything that this demonstration has started."""
    mark = f"DEMONSTRATION={log.name}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue  # It ended, or is another user's.
    return found


@pytest.mark.slow
@pytest.mark.timeout(RUN_SECONDS_MAX + PIPELINE_SECONDS_MAX + 60)
def test_the_demonstration(tmp_path):
    """It accounts for every mail, is live, shows its pipeline, and leaves nothing."""
    log = tmp_path / f"{uuid4()}.log"
    has_spark = importlib.util.find_spec("pyspark") is not None
    with demonstration(log, *([] if has_spark else ["--no-spark"])) as process:
        said(log, CLOSING.pattern, RUN_SECONDS_MAX)
        # A line every five seconds, since there is no terminal.
        progress = re.findall(r"^ *(\d+) s +\d+%", log.read_text(), re.MULTILINE)
        assert progress, log.read_text()

        url = said(log, r"page +(http://127\.0\.0\.1:\d+)/")[1]
        check_page_is_live(url)
        browser = check_admin(url, *said(log, r"/admin/  (\S+), (\S+)$").groups())
        if has_spark:
            check_charts(log, url, browser)
        said(log, "^Still up: ")
        said(log, r"^replay: the counts were deleted .*: 99[01] \+ 10$")
        check_orders_end(said(log, r"^Place an order: (\S+)$")[1])

        os.kill(process.pid, signal.SIGINT)
        assert 0 == process.wait(60), log.read_text()
    folder = Path(said(log, r"logs +(\S+)/logs$")[1])
    assert not folder.exists()
    assert [] == processes_of(log)


def check_charts(log: Path, url: str, browser: urllib.request.OpenerDirector) -> None:
    """All jobs of the pipeline succeed, and their page tells of the mails' task."""
    charts = said(log, r"^Charts: (\S+)$", PIPELINE_SECONDS_MAX)[1]
    said(log, r"^metrics: succeeded in [^,]+, [1-9][\d,]+ rows in, [1-9]\d* out")
    said(log, r"^failures: succeeded in [^,]+, [1-9][\d,]+ rows in, [1-9]\d* out")
    # One more was posted since.
    said(log, r"^ingest: succeeded in [^,]+, 1,00[01] rows in, 1,00[01] out")
    assert list(Path(said(log, "^Table of messages: (.+)$")[1]).rglob("*.parquet"))
    assert charts.startswith(f"{url}/admin/")
    with browser.open(charts, timeout=30) as page:
        assert "postoffice" in page.read().decode()


def check_page_is_live(url: str) -> None:
    """A mail posted while a browser shows the page becomes sent before its eyes."""
    chromium = require_system("chromium", reason="the page is tried in a browser")
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-quic"]
        )
        page = browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url)
        expect.set_options(timeout=20_000)
        expect(page.locator("#live")).to_have_text("Live")
        expect(page.locator("[data-count=sent]")).to_have_text("990")

        subject = "<b>Tom & Jerry</b> <script>document.title = 'pwned'</script>"
        mail = {"subject": subject, "to": ["tom@later.example"], "body": "Hi"}
        assert 202 == post(url, mail)[0]
        row = page.locator("#mails tr").first
        expect(row).to_contain_text(subject)
        expect(row.locator("small")).to_contain_text("451")
        expect(row.locator(".status")).to_have_text("sent", timeout=20_000)
        expect(page.locator("[data-count=all]")).to_have_text("1,001")
        expect(page).to_have_title("Post office")

        page.get_by_role("link", name="error").click()
        expect(page.locator("#mails tr")).to_have_count(10)
        expect(page.locator("#mails")).to_contain_text("rejected: 550")
        page.goto(url)
        page.get_by_role("link", name="Older").click()
        expect(page.locator("#mails tr")).to_have_count(50)
        assert [] == errors
        browser.close()


def check_admin(url: str, user: str, password: str) -> urllib.request.OpenerDirector:
    """The printed administrator can log in; return who is."""
    cookies = urllib.request.HTTPCookieProcessor()
    browser = urllib.request.build_opener(cookies)
    browser.open(f"{url}/admin/login/", timeout=30)
    token = next(c.value for c in cookies.cookiejar if c.name == "csrftoken")
    fields = {"username": user, "password": password, "csrfmiddlewaretoken": token}
    body = urllib.parse.urlencode(fields | {"next": "/admin/"}).encode()
    with browser.open(f"{url}/admin/login/", body, timeout=30) as answer:
        assert f"{url}/admin/" == answer.url
    return browser


def check_orders_end(page: str) -> None:
    """Each that a button places is done or undone, while partners fail at random."""
    cookies = urllib.request.HTTPCookieProcessor()
    browser = urllib.request.build_opener(cookies)
    with browser.open(page, timeout=30) as shown:
        (number, *_) = re.findall(
            r'name="product" value="(\d+)"', shown.read().decode()
        )
    token = next(c.value for c in cookies.cookiejar if c.name == "csrftoken")
    fields = {"product": number, "email": "ann@example.org"}
    body = urllib.parse.urlencode(fields | {"csrfmiddlewaretoken": token}).encode()
    for _ in range(10):
        with browser.open(f"{page}place/", body, timeout=30) as placed:
            assert re.fullmatch(rf"{page}\d+/", placed.url)

    def states() -> list[str]:
        with browser.open(page, timeout=30) as shown:
            return re.findall(r'class="status (\w+)"', shown.read().decode())

    wait_for(
        lambda: {"succeeded", "compensated"} >= set(states()),
        timeout=60,
        what=f"ten orders end: {states()}",
    )
    assert 10 == len(states())


def post(url: str, posted: object) -> tuple[int, dict]:
    request = urllib.request.Request(
        f"{url}/messages/",
        json.dumps(posted).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)
