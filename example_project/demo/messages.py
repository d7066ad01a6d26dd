"""The file of mails that the demonstration posts: one JSON object a line."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from example_project.demo.smtp_server import LATER, NEVER

MAILS = 1_000
LATER_MAILS = 25
NEVER_MAILS = 10

# Several, so that those who count mails by domain do not all wait for one row.
DOMAINS = ("example.org", "example.com", "example.net")
NAMES = ("ann", "bob", "chloe", "fatima", "grace", "hiroshi", "ines", "juergen")
OCCASIONS = (
    ("Your order {number} is on its way", "It left our warehouse this morning."),
    ("Payment receipt {number}", "We have received your payment. Thank you!"),
    ("Invoice {number}", "Your invoice is below. It is due within 14 days."),
    ("Reset your password ({number})", "If this was not you, ignore this mail."),
    ("Rückfrage zu Bestellung {number}", "Wir prüfen Ihre Bestellung. Schöne Grüße"),
    ("Sign-in from a new device 🔑 {number}", "Was this you?"),
)


def write_messages(file: Path, *, seed: int = 0) -> None:
    """Write MAILS mails, the same ones for the same seed; every subject is unique."""
    draw = random.Random(seed)
    domains = [LATER] * LATER_MAILS + [NEVER] * NEVER_MAILS
    domains += [DOMAINS[n % len(DOMAINS)] for n in range(MAILS - len(domains))]
    draw.shuffle(domains)
    with file.open("w", encoding="utf-8") as lines:
        for number, domain in enumerate(domains, start=1):
            mail = _mail(draw, number, domain)
            lines.write(json.dumps(mail, ensure_ascii=False) + "\n")


def _mail(draw: random.Random, number: int, domain: str) -> dict[str, Any]:
    name = draw.choice(NAMES)
    subject, text = draw.choice(OCCASIONS)
    mail: dict[str, Any] = {
        "subject": subject.format(number=100_000 + number),
        "to": [f"{name}.{number}@{domain}"],
        "body": f"Dear {name.title()},\n\n{text}\n\nYour post office\n",
    }
    if number % 7 == 0:
        mail["cc"] = [f"accounting.{number}@example.org"]
    if number % 11 == 0:
        mail["bcc"] = [f"archive.{number}@example.org"]
    return mail
