"""
Verdict: compare what was accepted with what came of it. Pure; evidence.py gathers.

The promise: every accepted mail is sent, or given up with a reason. It is sent again
only if the worker that sent it was killed between the server's 250 and the ack, so a
kill can repeat one mail for each thread of the process that it hit, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

# Reasons of dead letters that say nothing about whether the mail was sent.
CRASHES = ("worker_lost", "lease_expired")


@dataclass(frozen=True, slots=True)
class Fate:
    """
    What the database says of one mail.

    status: of its row, such as "sent"; None when there is no row.
    job: "succeeded", or "dead", or another state of a job; None when there is no job.
    reason: of a dead job.
    crashed: the workers that died or lost it, by their names, one for each time.
    """

    status: str | None
    job: str | None
    reason: str | None = None
    crashed: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Kill:
    """
    A worker process that was killed.

    Between the two moments it died. Threads: as many jobs as it can have been running.
    """

    worker: str
    killed_at: float
    dead_at: float
    threads: int


@dataclass(slots=True)
class Verdict:
    """What is true of this run, in ids of mails."""

    accepted: int
    sent: list[int] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    # An id for each copy beyond the first.
    repeated: list[int] = field(default_factory=list)
    unexplained: list[int] = field(default_factory=list)
    # A sentence for each thing that is wrong.
    findings: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether the promise was kept."""
        return not self.findings

    def line(self) -> str:
        """Return the closing line."""
        said = (
            f"accepted {self.accepted}, sent {len(self.sent)}, dead {len(self.dead)}, "
            f"lost {len(self.lost)}, repeated {len(self.repeated)}"
        )
        if not self.repeated:
            return said
        if not self.unexplained:
            return f"{said} (ids {_ids(self.repeated)}, each explained by a kill)"
        return (
            f"{said} (ids {_ids(self.repeated)}; explained by no kill: "
            f"{_ids(self.unexplained)})"
        )


def judge(
    fates: Mapping[int, Fate],
    copies: Mapping[int, Sequence[float]],
    kills: Sequence[Kill],
) -> Verdict:
    """
    Say whether the promise was kept.

    Args:
        fates: For each accepted mail, what the database says of it.
        copies: For each mail in the mailbox the moments of the server's 250s.
        kills: Those of this run. All moments are of one clock.
    """
    verdict = Verdict(accepted=len(fates))
    for mail, fate in sorted(fates.items()):
        _place(verdict, mail, fate, is_in_mailbox=mail in copies)
    for mail in sorted(copies.keys() - fates.keys()):
        verdict.findings.append(
            f"Mail {mail} is in the mailbox, and nobody was told that it was accepted."
        )
    gaps = [
        (mail, earlier, later)
        for mail in sorted(copies)
        for earlier, later in pairwise(sorted(copies[mail]))
    ]
    verdict.repeated = [mail for mail, _, _ in gaps]
    verdict.unexplained = _unexplained(gaps, fates, kills)
    for mail in sorted(set(verdict.unexplained)):
        verdict.findings.append(_told(mail, fates.get(mail), copies[mail], kills))
    return verdict


def _place(verdict: Verdict, mail: int, fate: Fate, *, is_in_mailbox: bool) -> None:
    """Put the mail among the sent, the dead or the lost."""
    says_sent = fate.status == "sent"
    # A worker that dies again and again after it sent a mail makes a dead letter of it.
    may_be_both = fate.job == "dead" and fate.reason in CRASHES
    if fate.job == "dead" and not (is_in_mailbox and says_sent and may_be_both):
        verdict.dead.append(mail)
        if is_in_mailbox and not may_be_both:
            verdict.findings.append(
                f"Mail {mail} is in the mailbox, and its job is dead: {fate.reason}."
            )
        if fate.status != "error":
            verdict.findings.append(
                f"The job of mail {mail} is dead, and its row says {fate.status}."
            )
    elif is_in_mailbox:
        verdict.sent.append(mail)
        if not says_sent:
            verdict.findings.append(
                f"Mail {mail} is in the mailbox, and its row says {fate.status}."
            )
        if fate.job != "succeeded" and not may_be_both:
            verdict.findings.append(
                f"Mail {mail} is in the mailbox, and its job is {fate.job}."
            )
    else:
        verdict.lost.append(mail)
        verdict.findings.append(
            f"Mail {mail} is lost: its row says {fate.status}, its job is {fate.job}."
        )


def _unexplained(
    gaps: Sequence[tuple[int, float, float]],
    fates: Mapping[int, Fate],
    kills: Sequence[Kill],
) -> list[int]:
    """
    Return the mail of each gap between two copies that no kill is left to explain.

    A kill explains as many gaps as its process had threads, each of another mail. Which
    one explains which is the largest matching of the two (Kuhn's algorithm), so that a
    clumsy choice cries no wolf.
    """
    able = _able(gaps, fates, kills)
    explains: dict[tuple[int, int], int] = {}  # (kill, thread) -> gap.

    def find(gap: int, tried: set[tuple[int, int]]) -> bool:
        for slot in able[gap]:
            if slot in tried:
                continue
            tried.add(slot)
            if slot not in explains or find(explains[slot], tried):
                explains[slot] = gap
                return True
        return False

    return [mail for gap, (mail, _, _) in enumerate(gaps) if not find(gap, set())]


def _able(
    gaps: Sequence[tuple[int, float, float]],
    fates: Mapping[int, Fate],
    kills: Sequence[Kill],
) -> list[list[tuple[int, int]]]:
    """
    Return for each gap the (kill, thread) that might explain it.

    The worker must have died within the gap, and be named by the mail's job among those
    that it lost; and it died only once, so it explains the first such gap of a mail.
    """
    able: list[list[tuple[int, int]]] = []
    used: set[tuple[int, str]] = set()
    for mail, earlier, later in gaps:
        slots: list[tuple[int, int]] = []
        crashed = fates[mail].crashed if mail in fates else ()
        for number, kill in enumerate(kills):
            within = earlier < kill.dead_at and kill.killed_at < later
            if within and kill.worker in crashed and (mail, kill.worker) not in used:
                used.add((mail, kill.worker))
                slots += [(number, thread) for thread in range(kill.threads)]
        able.append(slots)
    return able


def _told(
    mail: int, fate: Fate | None, moments: Sequence[float], kills: Sequence[Kill]
) -> str:
    """Tell what is known of a repeat that no kill explains."""
    at = ", ".join(f"{moment:.4f}" for moment in sorted(moments))
    said = f"Mail {mail} was repeated, and no kill explains it: 250 at {at}"
    for worker in fate.crashed if fate else ():
        said += f"; its job lost {worker}"
        for kill in kills:
            if kill.worker == worker:
                said += f", killed from {kill.killed_at:.4f} to {kill.dead_at:.4f}"
    return f"{said}."


def _ids(mails: Sequence[int]) -> str:
    return ", ".join(str(mail) for mail in sorted(set(mails)))
