"""The story of the demonstration, from top to bottom."""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import psycopg

from django_pgqueue import EmbeddedServerError
from example_project.demo.clients import CLIENTS, Clients
from example_project.demo.database import own_database
from example_project.demo.killer import KILLS, Killer
from example_project.demo.messages import (
    LATER_MAILS,
    MAILS,
    NEVER_MAILS,
    write_messages,
)
from example_project.demo.pipeline import Pipeline, PipelineFailed
from example_project.demo.processes import ProcessDied, Processes, listening_socket
from example_project.demo.progress import progress
from example_project.demo.project import set_up_django
from example_project.demo.replay import replay
from example_project.demo.smtp_server import LATER, LATER_SECONDS, NEVER
from example_project.demo.tally import Tally, wait_for_tally
from example_project.demo.verdict import Verdict, judge

WORKER_PROCESSES = 2
WORKER_THREADS = 4

RUN_SECONDS_MAX = 110.0
SETTLE_SECONDS_MAX = 3.0  # From the end of the last job to the last word in a row.
LOOK_SECONDS = 0.2
WATCH_SECONDS = 1.0

FINDINGS_MAX = 20  # Shown.

# The bank and the parcel service of the orders; they fail at random.
PARTNERS = ["-m", "example_project.orders.stub_server"]

# The page of the pipeline's result, with charts.
CHARTS = "admin:pgqueue_taskhour_changelist"

FAILED = 1
NO_PIPELINE = 3  # The mails are accounted for; the pipeline failed.
INTERRUPTED = 130  # The exit status that shells give for Ctrl+C.


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of this run; it goes when all was well."""

    folder: Path

    @property
    def messages(self) -> Path:
        return self.folder / "messages.jsonl"

    @property
    def mailbox(self) -> Path:
        return self.folder / "mailbox"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.jsonl"

    @property
    def events(self) -> Path:
        return self.folder / "events"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"


def main() -> int:
    """Run the demonstration; return 0 only if every mail was accounted for."""
    parser = argparse.ArgumentParser(
        prog="make demo",
        description="Post 1,000 mails while workers are killed; count what arrives. "
        "Then digest what the queue has done, and replay the messages.",
        epilog="Exit status: 0 all was well; 1 a mail is not accounted for, or the "
        "demonstration did not get through; 3 all mails are accounted for, and only "
        "the pipeline failed; 130 interrupted.",
    )
    parser.add_argument(
        "--exit", action="store_true", help="leave at the end instead of staying up"
    )
    parser.add_argument(
        "--no-spark",
        action="store_true",
        help="leave the pipeline out, and what it would install",
    )
    asked = parser.parse_args()
    # SIGINT too: a shell that puts us into the background lets us ignore it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        with own_database() as database:
            return in_a_folder(database, asked)
    except KeyboardInterrupt:
        print("\nInterrupted.")
        return INTERRUPTED
    except (EmbeddedServerError, psycopg.Error) as error:
        print(f"The database cannot be used: {error}")
    except DemoFailed as error:
        print(error)
    return FAILED


def in_a_folder(database: str, asked: argparse.Namespace) -> int:
    """Run the demonstration in a folder of its own, kept only if something failed."""
    place = Place(Path(tempfile.mkdtemp(prefix="post-office-")))
    is_kept = True
    try:
        status = demonstrate(place, database, asked)
        is_kept = status != 0
        return status
    except KeyboardInterrupt:
        is_kept = False
        raise
    finally:
        if is_kept:
            print(f"Kept for you to look at: {place.folder}")
        else:
            shutil.rmtree(place.folder, ignore_errors=True)


def demonstrate(place: Place, database: str, asked: argparse.Namespace) -> int:
    """Start everything, run, judge, stay up if asked; everything is stopped after."""
    place.logs.mkdir()
    os.environ["SECRET_KEY"] = secrets.token_urlsafe()
    os.environ["DEBUG"] = "0"
    set_up_django()
    password = prepare_database()
    write_messages(place.messages)

    with Processes(place.logs) as processes:
        smtp, web, others = (listening_socket() for _ in range(3))
        mail_port, port = smtp.getsockname()[1], web.getsockname()[1]
        processes.start("mail", mail_command(place), listen=smtp)
        mail_url = f"smtp://127.0.0.1:{mail_port}"
        processes.start("web", ["-m", "example_project.demo.web_server"], listen=web)
        partners_url = f"http://127.0.0.1:{others.getsockname()[1]}"
        processes.start("partners", PARTNERS, listen=others)
        worker = processes.manage(
            "worker", *worker_command(), EMAIL_URL=mail_url, PARTNERS_URL=partners_url
        )
        pipeline = None if asked.no_spark else Pipeline(processes, place.events)
        introduce(place, database, port, mail_url, password, pipeline)
        try:
            if pipeline is not None:
                pipeline.prepare()
            verdict, tally = run(place, processes, port, worker)
            if not verdict.holds:
                print(processes.tails(), *verdict.findings[:FINDINGS_MAX], sep="\n")
                if len(verdict.findings) > FINDINGS_MAX:
                    print(f"… and {len(verdict.findings) - FINDINGS_MAX} more")
            print(verdict.line(), tally.line(), sep="\n", flush=True)
            is_digested = pipeline is None or digest(pipeline, place, port, asked)
            print("\nReplay: what was published, once more", flush=True)
            differences = replay()
            for difference in differences:
                print(difference, flush=True)
            if not asked.exit:
                stay_up(processes, port)
        except (ProcessDied, PartFailed) as error:
            raise DemoFailed(f"{processes.tails()}\n{error}") from error
        if not verdict.holds or differences:
            return FAILED
        return 0 if is_digested else NO_PIPELINE


class PartFailed(Exception):
    """A client or the killer could not do its part."""


class DemoFailed(Exception):
    """The demonstration itself did not get through; with the ends of the logs."""


def prepare_database() -> str:
    """Migrate, add an administrator, and return the password."""
    from django.contrib.auth import get_user_model
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    password = secrets.token_urlsafe(9)
    get_user_model().objects.create_superuser("admin", "admin@example.org", password)
    return password


def mail_command(place: Place) -> list[str]:
    """Return how Python starts the mail server."""
    files = ["--maildir", str(place.mailbox), "--ledger", str(place.ledger)]
    return ["-m", "example_project.demo.smtp_server", *files]


def worker_command() -> list[str]:
    """Return how manage.py starts the worker."""
    processes, threads = str(WORKER_PROCESSES), str(WORKER_THREADS)
    return ["pgqueue_worker", "--processes", processes, "--threads", threads]


def introduce(
    place: Place,
    database: str,
    port: int,
    mail_url: str,
    password: str,
    pipeline: Pipeline | None,
) -> None:
    """Say what runs, and where."""
    from django.db import connection

    version = connection.cursor().connection.info.server_version // 10_000
    print(
        f"Post office, a demonstration of django_pgqueue\n\n"
        f"  page      http://127.0.0.1:{port}/\n"
        f"  counters  http://127.0.0.1:{port}/counters/\n"
        f"  admin     http://127.0.0.1:{port}/admin/  admin, {password}\n"
        f"  database  {database}, PostgreSQL {version}\n"
        f"  mail      {mail_url} into {place.mailbox}\n"
        f"            refuses {LATER_MAILS} at {LATER} for {LATER_SECONDS:.0f} s, "
        f"{NEVER_MAILS} at {NEVER} for ever\n"
        f"  worker    {WORKER_PROCESSES} processes of {WORKER_THREADS} threads; "
        f"{KILLS} times one that is busy gets SIGKILL\n"
        f"  clients   {CLIENTS} post {MAILS:,} mails from {place.messages}\n"
        f"  pipeline  {pipeline.introduction() if pipeline else 'left out'}\n"
        f"  logs      {place.logs}\n",
        flush=True,
    )


def run(
    place: Place, processes: Processes, port: int, worker: int
) -> tuple[Verdict, Tally]:
    """
    Post and kill until nothing is left to do, and judge; count what was published.

    Raises:
        ProcessDied: One of the processes ended.
        PartFailed: A client or the killer met something else than it should.
    """
    from example_project.demo.evidence import gather

    clients = Clients(place.messages, port)
    done = 0.0
    killer = Killer(worker, lambda: done)
    started_at = time.monotonic()
    try:
        clients.start()
        killer.start()
        with progress() as shown:
            while True:
                counted = count()
                done = (counted["sent"] + counted["error"]) / MAILS
                shown.update(done, figures(len(clients.accepted), counted, killer))
                if clients.are_done and not counted["jobs"]:
                    break
                processes.check()
                if time.monotonic() > started_at + RUN_SECONDS_MAX:
                    break  # The verdict says what is missing.
                time.sleep(LOOK_SECONDS)
    finally:
        clients.stop()
        killer.stop()
    for failure in (clients.failure, killer.failure):
        if failure is not None:
            raise PartFailed(f"{type(failure).__name__}: {failure}") from failure
    if len(killer.kills) < KILLS:
        raise PartFailed(
            f"Only {len(killer.kills)} of {KILLS} kills met a busy process."
        )

    wait_for_last_words()
    evidence = gather(clients.accepted, place.mailbox, place.ledger)
    verdict = judge(evidence.fates, evidence.copies, killer.kills)
    verdict.findings += evidence.findings
    tally = wait_for_tally()
    verdict.findings += tally.findings()
    return verdict, tally


def count() -> dict[str, int]:
    """Return how many mails there are of each status, and how many jobs are left."""
    from django.db.models import Count
    from postoffice.models import EmailMessage, Status

    from django_pgqueue.models import Job

    by_status = EmailMessage.objects.values_list("status").annotate(Count("pk"))
    counted = dict.fromkeys(Status.values, 0) | dict(by_status.order_by())
    return counted | {"jobs": Job.objects.count()}


def figures(accepted: int, counted: dict[str, int], killer: Killer) -> str:
    """Return the figures beside the bar."""
    return (
        f"accepted {accepted}, sent {counted['sent']}, dead {counted['error']}, "
        f"kills {len(killer.kills)}"
    )


def wait_for_last_words() -> None:
    """Wait until no row is under way; a row follows its job by a moment."""
    until = time.monotonic() + SETTLE_SECONDS_MAX
    while time.monotonic() < until:
        counted = count()
        if not counted["scheduled"] and not counted["claimed"]:
            return
        time.sleep(LOOK_SECONDS)


def digest(
    pipeline: Pipeline, place: Place, port: int, asked: argparse.Namespace
) -> bool:
    """Run the pipeline, and say where its result is; False: it failed."""
    from django.urls import reverse

    print("\nPipeline: what the queue has done", flush=True)
    try:
        pipeline.run()
    except PipelineFailed as error:
        print(
            f"{error}\n"
            f"The pipeline failed. The mails are as said above. Logs: {place.logs}",
            flush=True,
        )
        return False
    charts = f"http://127.0.0.1:{port}{reverse(CHARTS)}"
    ends = " (the server ends now; without --exit it stays up)" if asked.exit else ""
    print(
        f"Charts: {charts}{ends}\nTable of messages: {place.events}",
        flush=True,
    )
    return True


def stay_up(processes: Processes, port: int) -> None:
    """Return on Ctrl+C."""
    print(
        f"\nStill up: http://127.0.0.1:{port}/ — Ctrl+C ends. Send a mail of yours:\n"
        f"  curl http://127.0.0.1:{port}/messages/ -H 'Content-Type: application/json' "
        f"""-d '{{"subject": "Hello", "to": ["you@example.org"], "body": "Hi!"}}'\n"""
        f"Place an order: http://127.0.0.1:{port}/orders/",
        flush=True,
    )
    try:
        while True:
            processes.check()
            time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        print("\nStopping.")


def interrupt(number: int, frame: FrameType | None) -> None:
    """Treat SIGTERM and SIGHUP as Ctrl+C, and Ctrl+C as Python does."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
