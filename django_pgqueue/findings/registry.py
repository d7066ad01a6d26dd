"""
Registry: every finding by its name, and how one is written.

A finding is a function that reads what it needs from a Look and yields verdicts; its
decorator names it and says who asks for it. The doctor asks for all of them, the
admin's overview for those with a part, `manage.py check --database` for those with an
id, and a worker that starts for the fatal ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from django_pgqueue.findings.look import Look
from django_pgqueue.operators.human import named

Severity = Literal["ok", "warning", "error"]

# Least to worst.
SEVERITIES: tuple[Severity, ...] = ("ok", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    One thing that was looked at.

    Attributes:
        check: The name of the finding, which never changes: for scripts.
        severity: "error": jobs do not run, or soon will not. "warning": somebody
            should look. "ok": as it should be.
        what: The finding, in a sentence.
        value: What was measured, where that is a number or a list.
        limit: What the value is held against.
        way_out: What to do; empty where all is well.
        about: The name of the one queue that it concerns; "": of several, or of none.
    """

    check: str = ""
    severity: Severity = "ok"
    what: str
    value: object = None
    limit: object = None
    way_out: str = ""
    about: str = ""


Findings = Iterator[Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """
    How to find one thing.

    Attributes:
        name: Of its findings.
        read: Looks, and yields findings without a name.
        part: The part of the overview that shows it; "": none does.
        id: Of the system check that warns of the same, such as "W013"; "": none does.
        is_fatal: Whether nothing else can be examined after an error.
        in_transaction: Whether it can be read in a transaction.
    """

    name: str
    read: Callable[[Look], Iterable[Finding]]
    part: str = ""
    id: str = ""
    is_fatal: bool = False
    in_transaction: bool = True

    def examine(self, look: Look) -> list[Finding]:
        """Return the findings."""
        return [replace(each, check=self.name) for each in self.read(look)]


# In the order in which the doctor asks.
REGISTRY: dict[str, Check] = {}


def finding(name: str, **traits: Any) -> Callable[[Callable[[Look], Findings]], Check]:
    """Make a check of a function that yields findings, with *traits* of a Check."""

    def register(read: Callable[[Look], Findings]) -> Check:
        REGISTRY[name] = check = Check(name=name, read=read, **traits)
        return check

    return register


def listing(
    name: str,
    *,
    wrong: str,
    right: str,
    way_out: str,
    severity: Severity = "warning",
    limit: object = None,
    **traits: Any,
) -> Callable[[Callable[[Look], Iterable[Any]]], Check]:
    """
    Make a check of a function that yields what is wrong, one by one.

    It yields a text for each, or its name and such a text. The names are the value of
    the finding; {} in *wrong* stands for the texts.
    """

    def register(read: Callable[[Look], Iterable[Any]]) -> Check:
        def examine(look: Look) -> Findings:
            pairs = [(it, it) if isinstance(it, str) else it for it in read(look)]
            yield verdict(
                pairs,
                wrong.replace("{}", named([text for _name, text in pairs])),
                way_out,
                right=right,
                severity=severity,
                value=[name for name, _text in pairs],
                limit=limit,
            )

        return finding(name, **traits)(examine)

    return register


def verdict(
    is_wrong: object,
    what: str,
    way_out: str,
    *,
    right: str = "",
    severity: Severity = "warning",
    value: object = None,
    limit: object = None,
    about: str = "",
) -> Finding:
    """
    Return what was found, with its way out; or that all is as it should be.

    Args:
        is_wrong: Whether somebody should do something.
        what: The finding.
        way_out: Left out where nothing is wrong.
        right: The finding where nothing is wrong, if that is another sentence.
        severity: Of what is wrong.
        value: As of a finding.
        limit: As of a finding.
        about: As of a finding; left out where nothing is wrong.
    """
    if not is_wrong:
        return Finding(what=right or what, value=value, limit=limit)
    return Finding(
        severity=severity,
        what=what,
        value=value,
        limit=limit,
        way_out=way_out,
        about=about,
    )
