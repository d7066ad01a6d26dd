"""
Broken builds: the package without one of its protections.

The checker must find each of them out, or it would find nothing. What is changed is
told by the text that stands there; where that has moved on, the build says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

from django_pgqueue.worker.service import BACKOFF_SECONDS_MAX
from tests.faults.build import FUNCTIONS, make_build


@dataclass(frozen=True, slots=True)
class Edit:
    """One text in one file, and what stands there instead."""

    file: str
    old: str
    new: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Broken:
    """A build, the row that finds it out, and the violations that it does so by."""

    title: str
    edits: tuple[Edit, ...]
    row: str
    found_by: frozenset[str]


def broken(title: str, row: str, found_by: tuple[str, ...], *edits: Edit) -> Broken:
    """Return a build that lacks what *edits* take away."""
    return Broken(title, edits, row, frozenset(found_by))


# How a promotion gets its locks, before the statement that counts.
PROMOTE_LOCK = (
    "    PERFORM pg_advisory_xact_lock(706706, hashed.key)\n"
    "       FROM (SELECT DISTINCT (hashtextextended(name, home)"
    " % 2147483647)::integer AS key\n"
    "               FROM unnest(in_lanes) name ORDER BY key) hashed;\n"
)
PROMOTE_INTO = "           probed, probes;\n"

# What it let through stays unseen while a job that has failed is parked in these lanes.
# That one is first again when it is due, however many are parked behind it: so whoever
# counts by then lets it through, too, unless he waits for the lock before he counts.
PROMOTE_SLOWLY = """    IF jobs > 0 AND random() < 0.5 THEN
        FOR turn IN 1 .. 50 LOOP
            EXIT WHEN NOT EXISTS (
                SELECT FROM pgqueue_job j WHERE j.lane = ANY(in_lanes)
                   AND j.visible_at IS NULL AND j.deliveries > 0);
            PERFORM pg_sleep(0.01);
        END LOOP;
    END IF;
"""

BUILDS: dict[str, Broken] = {
    "no-fence": broken(
        "a settle matches the job's id alone",
        "P1-small",
        ("accepted", "illegal"),
        Edit(
            "queues/settle.py",
            "   AND j.id = ended.id AND j.deliveries = ended.delivery"
            " AND j.leased_by = %(worker)s\n",
            "   AND j.id = ended.id\n",
        ),
    ),
    "no-slots": broken(
        "jobs of a dead process are handed back without asking which were running",
        "K1-small",
        ("illegal",),
        Edit(
            "worker/supervise/supervisor.py",
            "running = [] if forced else child.slots.running()",
            "running = []",
        ),
    ),
    "no-row-count": broken(
        "a settle is taken as written, whatever rows it matched",
        "P1-small",
        ("phantoms",),
        Edit(
            "worker/settle/settler.py",
            "is_stale=item.job.id not in matched",
            "is_stale=False",
        ),
    ),
    "no-renewal": broken(
        "the heartbeat renews nothing",
        "P1-small",
        ("unexplained",),
        Edit(
            "queues/lease.py",
            " AND j.leased_by = %(worker)s\n       FOR UPDATE OF j SKIP LOCKED)",
            " AND false\n       FOR UPDATE OF j SKIP LOCKED)",
        ),
    ),
    "suspects-beside": broken(
        "a job whose process died runs beside others",
        "K1-small",
        ("suspects_run_alone",),
        Edit("queues/claim.py", " AND NOT j.runs_alone\n", "\n"),
        Edit(
            "worker/run/control.py",
            "if job.runs_alone and self.on_suspect is not None",
            "if False",
        ),
    ),
    "claims-leased": broken(
        "a claim takes what somebody holds",
        "K1-small",
        ("overlaps",),
        Edit(
            "queues/claim.py",
            "              AND j.visible_at <= statement_timestamp()\n"
            "              AND j.id <> ALL(%(barred)s::bigint[])\n",
            "              AND j.id <> ALL(%(barred)s::bigint[])\n",
        ),
    ),
    "claims-own": broken(
        "a process claims its own leases that ran out, before it renews them",
        "D2-small",
        ("nothing_runs_beside_itself",),
        Edit(
            "worker/claim/claimer.py",
            "barred = self._barred()",
            "barred: list[int] = []",
        ),
        Edit(
            "worker/lease/leases.py",
            "refused = [job for job in jobs if job.id in known]",
            "refused: list[Claimed] = []",
        ),
        # And the heartbeat does not happen to be first: once the server is back it
        # waits for longer than the claimer does at most.
        Edit(
            "worker/chores/heartbeat.py",
            "        is_missing = self._renew()\n",
            "        if self._failures:\n"
            '            self.link.connection.execute("SELECT 1")\n'
            f"            time.sleep({BACKOFF_SECONDS_MAX + 1})\n"
            "        is_missing = self._renew()\n",
        ),
    ),
    "any-isolation": broken(
        "the worker's connections take the role's isolation level",
        "D6-small",
        ("no_serialization_failure",),
        Edit(
            "postgres/connect.py",
            "            connection.execute(READ_COMMITTED)\n",
            "            pass\n",
        ),
    ),
    "tick-twice": broken(
        "whoever has read that a tick is due issues it",
        "C3-small",
        ("ticks_are_whole", "ticks_move_on"),
        Edit(
            "schedules/ticks.py",
            "                AND last_tick IS NOT DISTINCT FROM"
            " %(seen)s::timestamptz\n"
            "                AND (last_tick IS NULL OR last_tick < %(latest)s)\n",
            "",
        ),
        Edit(
            "schedules/ticks.py",
            "ON CONFLICT (schedule_id, due_at) DO NOTHING\n",
            "ON CONFLICT (schedule_id, due_at) DO UPDATE SET missed ="
            " excluded.missed\n",
        ),
    ),
    "own-clock": broken(
        "a scheduler goes by its own clock",
        "C3-small",
        ("ticks_are_due",),
        Edit(
            "worker/chores/scheduler.py",
            "now = database_now(cursor)",
            "now = datetime.now().astimezone()",
        ),
        Edit(
            "schedules/ticks.py",
            "                AND %(latest)s <= clock_timestamp()\n",
            "",
        ),
    ),
    "promote-at-once": broken(
        "a promotion takes no lock before it counts",
        "Q1-small",
        ("lanes_hold_no_more",),
        Edit("sql/promote.sql", PROMOTE_LOCK, ""),
        # Now and then slowly, so that others meet it; that does no harm itself.
        Edit(
            "sql/promote.sql",
            PROMOTE_INTO,
            PROMOTE_INTO + PROMOTE_SLOWLY,
        ),
    ),
    "rate-of-promotions": broken(
        "a rate counts what it lets through, and not what still waits for a thread",
        "Q3-small",
        ("rates_hold",),
        Edit(
            "sql/promote.sql",
            "SELECT greatest(told.unclaimed, waiting.jobs) AS unclaimed",
            "SELECT 0 AS unclaimed",
        ),
    ),
    "place-of-lapsed": broken(
        "a lease that has run out has no place in its queue",
        "Q4-small",
        ("queue_holds_no_more",),
        Edit(
            "queues/queue_limits.py",
            "SELECT count(has_lapsed)::integer AS jobs,",
            "SELECT (count(*) FILTER (WHERE NOT has_lapsed))::integer AS jobs,",
        ),
    ),
    "queue-unpaid": broken(
        "who claims from a queue takes nothing from its rate",
        "Q4-quick",
        ("queue_keeps_rate",),
        Edit("queues/queue_limits.py", '"jobs": len(jobs),', '"jobs": 0,'),
    ),
    "no-turns": broken(
        "jobs of fair lanes are claimed as they came",
        "Q5-small",
        ("turns_are_taken",),
        Edit("sql/turns.sql", "LIMIT turn.quota) waiting", "LIMIT in_jobs) waiting"),
        Edit(
            "sql/turns.sql",
            "ORDER BY round, turn.place, share LIMIT in_jobs",
            "ORDER BY waiting.id LIMIT in_jobs",
        ),
    ),
    "saga-apart": broken(
        "a saga goes on in a transaction of its own, after the one that ends its step",
        "G1-small",
        ("sagas_end",),
        Edit(
            "sql/jobs_gone.sql",
            "    IF ended IS NOT NULL THEN\n",
            "    IF ended IS NOT NULL\n"
            "        AND current_setting('application_name')"
            " NOT LIKE 'pgqueue settler%' THEN\n",
        ),
        Edit(
            "worker/settle/settler.py",
            "            matched = self._settle(kind, items)\n"
            "        if self._is_uncertain",
            "            matched = self._settle(kind, items)\n"
            "            if kind in ('ack', 'dead'):\n"
            "                with self.link.cursor() as cursor:\n"
            "                    cursor.execute(\n"
            '                        "SELECT pgqueue_steps_ended(%s::bigint[],'
            " '{}')\",\n"
            "                        [list(matched)],\n"
            "                    )\n"
            "        if self._is_uncertain",
        ),
    ),
    "saga-undo-beside": broken(
        "a saga starts all of its compensations at once",
        "G1-small",
        ("sagas_keep_order",),
        Edit(
            "sql/compensate.sql",
            "SELECT DISTINCT ON (c.workflow_id) c.id\n",
            "SELECT c.id\n",
        ),
    ),
    "saga-undo-one": broken(
        "a saga is compensated as soon as something is undone",
        "G1-small",
        ("sagas_are_whole",),
        Edit(
            "sql/compensate.sql",
            "           AND c.state = 'waiting'\n",
            "           AND c.state = 'waiting'\n"
            "           AND NOT EXISTS (\n"
            "               SELECT FROM pgqueue_step o\n"
            "                WHERE o.workflow_id = c.workflow_id\n"
            "                  AND o.kind = 'compensation'\n"
            "                  AND o.state = 'succeeded')\n",
        ),
    ),
    "saga-step-redriven": broken(
        "a step that gave up stays a dead letter, which people redrive",
        "G1-small",
        ("people_are_seldom_needed",),
        Edit(
            "sql/compensate.sql",
            "                  AND s.state = 'dead'))\n",
            "                  AND false))\n",
        ),
    ),
}


def make_broken(name: str, package: Path, into: Path) -> Path:
    """
    Make the build called *name* in the new folder *into*; return the folder.

    Raises:
        LookupError: The package no longer has the text that the build changes.
    """
    build = make_build(package, into)
    edits = BUILDS[name].edits
    for edit in edits:
        path = build / "django_pgqueue" / edit.file
        text = path.read_text()
        if text.count(edit.old) != edit.times:
            raise LookupError(
                f"The broken build {name!r} changes {edit.old!r} in {edit.file}, which "
                f"is there {text.count(edit.old)} times, not {edit.times}."
            )
        path.write_text(text.replace(edit.old, edit.new))
        Path(cache_from_source(path)).unlink(missing_ok=True)
    functions = sorted({edit.file for edit in edits if edit.file.startswith("sql/")})
    if functions:
        package = build / "django_pgqueue"
        # What replaces a function takes its pins off, too.
        files = [package / name for name in (*functions, "sql/pins.sql")]
        (build / FUNCTIONS).write_text("".join(file.read_text() for file in files))
    return build
