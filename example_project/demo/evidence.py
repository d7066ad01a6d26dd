"""Evidence: read mailbox, ledger and database, and turn them into plain values."""

from __future__ import annotations

import json
import mailbox
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from email import policy
from email.message import EmailMessage as Mail
from email.parser import BytesParser
from pathlib import Path
from typing import Any

from example_project.demo.verdict import CRASHES, Fate


@dataclass(slots=True)
class Evidence:
    """What verdict.judge() is asked about, and what was wrong with the mails."""

    fates: dict[int, Fate] = field(default_factory=dict)
    copies: dict[int, list[float]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


def gather(
    accepted: Mapping[int, dict[str, Any]], maildir: Path, ledger: Path
) -> Evidence:
    """
    Gather what became of the mails that were *accepted*.

    Args:
        accepted: What was posted, by the id that the post office answered.
        maildir: Where the mail server put the mails.
        ledger: Where it noted each 250.
    """
    evidence = Evidence()
    job_of = _read_database(evidence, accepted)
    moments: dict[str, list[float]] = {}
    for line in ledger.read_text().splitlines():
        entry = json.loads(line)
        moments.setdefault(entry["message_id"], []).append(entry["at"])

    mails = read_mails(maildir)
    stored = Counter(mail["Message-ID"] for mail in mails)
    if stored != {message_id: len(found) for message_id, found in moments.items()}:
        evidence.findings.append("Mailbox and ledger hold different mails.")
    for mail in mails:
        number = int(mail["X-Post-Office"])
        key = str(mail["Message-ID"])
        evidence.copies[number] = moments.get(key, [])
        posted = accepted.get(number)
        if posted and (wrong := _difference(mail, posted)):
            evidence.findings.append(f"Mail {number} has another {wrong}.")
        # "<installation-job@domain>": each mail is sent by its own job alone.
        job = key.partition("@")[0].rpartition("-")[2]
        if posted and job != str(job_of.get(number)):
            evidence.findings.append(f"Mail {number} was sent by job {job}.")
    return evidence


def read_mails(maildir: Path) -> list[Mail]:
    """Return every mail in the mailbox."""
    parser = BytesParser(policy=policy.default)
    box = mailbox.Maildir(maildir, create=False)
    return [parser.parsebytes(box.get_bytes(key)) for key in box.iterkeys()]


def _difference(mail: Mail, posted: Mapping[str, Any]) -> str | None:
    """Return the first thing that is not as it was posted; None: all is."""
    recipients = [*posted["to"], *posted.get("cc", []), *posted.get("bcc", [])]
    if mail["Subject"] != posted["subject"]:
        return "subject"
    if sorted(str(mail["X-RcptTo"]).split(", ")) != sorted(recipients):
        return "recipients"
    if "Bcc" in mail:
        return "header: it shows its bcc"
    text = mail.get_content().replace("\r\n", "\n")
    return None if text.strip() == posted["body"].strip() else "body"


def _read_database(evidence: Evidence, accepted: Mapping[int, Any]) -> dict[int, int]:
    """Fill in the fates; return the job of each mail."""
    from postoffice.models import EmailMessage

    from django_pgqueue.models import ArchivedJob, DeadLetter, Job

    rows = {row.pk: row for row in EmailMessage.objects.all()}
    jobs: dict[int, tuple[str | None, str | None, list[dict[str, Any]]]] = {}
    for job_id in Job.objects.values_list("id", flat=True):
        jobs[job_id] = ("not finished", None, [])
    ended = ArchivedJob.objects.values_list("id", "state", "errors")
    for job_id, state, errors in ended:
        jobs[job_id] = (state, None, errors)
    dead = DeadLetter.objects.values_list("id", "reason", "errors")
    for job_id, reason, errors in dead:
        jobs[job_id] = ("dead", reason, errors)

    for number in accepted:
        row = rows.get(number)
        job = row.job if row else None
        fate, why, errors = jobs.get(job or 0, (None, None, []))
        evidence.fates[number] = Fate(
            status=row.status if row else None,
            job=fate,
            reason=why,
            crashed=[
                error["worker"] for error in errors if error.get("kind") in CRASHES
            ],
        )
    return {number: row.job for number, row in rows.items()}
