"""Report: a line for people and a JSON document for everything else."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from tests.faults.run import Result

# Whatever the row asks for, and these, which say something of any row.
BITES_SHOWN = {
    "crashed",
    "lapsed",
    "returned",
    "interrupted",
    "reconnected",
    "unknown",
    "handler_database_errors",
    "refused_enqueues",
}


def line(report: dict[str, Any]) -> str:
    """Return the numbers of a run in one line."""
    counts, bites = Counter(report["counts"]), report["bites"]
    faults = ", ".join(f"{n} {kind}" for kind, n in report["happened"].items())
    drained = report["drained_seconds"]
    felt = ", ".join(
        f"{name} {n}"
        for name, n in bites.items()
        if n and (name in BITES_SHOWN or name in report["must_bite"])
    )
    return (
        f"{report['row']:<3} {'valid' if report['valid'] else 'INVALID':<8}"
        f"seed={report['seed']}  share={report['share']:g}  "
        f"{counts['stored']} jobs, {faults or 'no faults'}: "
        f"lost {counts['lost']}, unexpected {counts['unexpected']}, "
        f"repeats {counts['duplicated']} ({counts['explained']} explained), "
        f"accepted stale writes {counts['accepted']}, refused {counts['stale']}"
        f"{_forgotten(counts)}; "
        f"felt: {felt or 'NOTHING'}; "
        f"{_ticks(report['measures'])}{_lanes(report['measures'])}"
        f"{_sagas(report['measures'])}"
        f"drained in {'-' if drained is None else f'{drained:.1f} s'}; "
        f"{report['seconds']:.0f} s"
    )


def _forgotten(counts: Counter[str]) -> str:
    """Return what there is to say of claims that a crash of the server forgot."""
    return f", forgotten claims {counts['forgotten']}" if counts["forgotten"] else ""


def _ticks(measures: dict[str, Any]) -> str:
    """Return what there is to say of schedules, if anything."""
    if "ticks" not in measures:
        return ""
    return f"{measures['ticks']} ticks, at most {measures['late_seconds']:.1f} s late; "


def _lanes(measures: dict[str, Any]) -> str:
    """Return what there is to say of lanes, if anything."""
    if "turns_ahead" in measures:
        return f"at most {measures['turns_ahead']} turns ahead; "
    if "room_seconds" not in measures:
        return ""
    return f"room for at most {measures['room_seconds']:.1f} s; "


def _sagas(measures: dict[str, Any]) -> str:
    """Return what there is to say of sagas, if anything."""
    states = ", ".join(f"{n} {state}" for state, n in measures["sagas"].items())
    return f"sagas: {states}; " if states else ""


def problems(report: dict[str, Any]) -> list[str]:
    """Return what was violated, one line each."""
    found = [
        f"    {kind}: {text}"
        for kind, texts in report["violations"].items()
        for text in texts
    ]
    if not report["bit"]:
        found.append(f"    no fault has bitten: none of {report['must_bite']}")
    return found


def of(result: Result) -> dict[str, Any]:
    """Return everything about a run that its seed does not say, and the seed."""
    verdict, evidence = result.verdict, result.evidence
    return {
        "row": result.run.name,
        "title": result.run.row.title,
        "seed": result.run.seed,
        "share": result.run.share,
        "valid": verdict.is_valid,
        "bit": verdict.bit,
        "must_bite": list(verdict.must_bite),
        "counts": dict(verdict.counts),
        "bites": dict(verdict.bites),
        "violations": {
            kind: texts for kind, texts in verdict.violations.items() if texts
        },
        "happened": dict(Counter(harm.kind for harm in evidence.harms)),
        "drained_seconds": result.drained_seconds,
        "seconds": result.seconds,
        "measures": evidence.measures,
        "options": result.run.options(),
        "plan": [asdict(fault) for fault in result.run.faults()],
    }
