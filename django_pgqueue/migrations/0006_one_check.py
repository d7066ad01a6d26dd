"""One CHECK that calls a function, in place of seven: the same rules and names."""

from typing import NamedTuple

from django.db import migrations

# A CHECK is stored as text, and each INSERT and UPDATE statement reads that text and
# prepares it anew: 12.7 KB for seven of them, a third of the server's work for one job.
# What a PL/pgSQL function was compiled to is kept with the session.

# Qualified, since a function's body is read by the search_path of whoever inserts:
# that of a restore is empty, and somebody may have an operator of the same name. A SET
# clause would do it too, and cost more than the whole check.
GE, LE = "OPERATOR(pg_catalog.>=)", "OPERATOR(pg_catalog.<=)"
EQ, NE = "OPERATOR(pg_catalog.=)", "OPERATOR(pg_catalog.<>)"
LT = "OPERATOR(pg_catalog.<)"
TYPE_OF = "pg_catalog.jsonb_typeof"
TIME_MIN = "TIMESTAMP WITH TIME ZONE '1900-01-01 00:00+00'"
TIME_MAX = "TIMESTAMP WITH TIME ZONE '9999-01-01 00:00+00'"

COLUMNS = {
    "queue": "varchar",
    "task": "varchar",
    "args": "jsonb",
    "kwargs": "jsonb",
    "headers": "jsonb",
    "errors": "jsonb",
    "priority": "smallint",
    "attempt": "smallint",
    "max_attempts": "smallint",
    "crashes": "smallint",
    "deliveries": "integer",
    "lane_capacity": "integer",
    "leased_by": "varchar",
    "visible_at": "timestamptz",
    "run_after": "timestamptz",
    "enqueued_at": "timestamptz",
    "expires_at": "timestamptz",
    "leased_at": "timestamptz",
    "cancel_requested_at": "timestamptz",
}
TIMES = [name for name, kind in COLUMNS.items() if kind == "timestamptz"]


class Rule(NamedTuple):
    """One reason to refuse a row; it counts when *holds* is false, not when NULL."""

    name: str  # What diag.constraint_name tells.
    holds: str
    message: str  # With a % for each of the values.
    values: str
    hint: str


# By name, since PostgreSQL tried the CHECKs in that order: a row that breaks two rules
# is refused by the same one as ever.
RULES = (
    Rule(
        name="pgqueue_job_attempt_counts",
        holds=f"attempt {GE} 0 AND max_attempts {GE} 1 AND crashes {GE} 0"
        f" AND deliveries {GE} attempt",
        message="attempt %, max_attempts %, crashes %, deliveries %: max_attempts is at"
        " least 1, none is negative, and deliveries is not below attempt",
        values="attempt, max_attempts, crashes, deliveries",
        hint="Set max_attempts alone, and leave the others to the workers.",
    ),
    Rule(
        name="pgqueue_job_lane_has_capacity",
        holds=f"lane_capacity IS NULL OR lane_capacity {GE} 1",
        message="lane_capacity %: it is at least 1",
        values="lane_capacity",
        hint="Leave it out: it is 1 then.",
    ),
    Rule(
        name="pgqueue_job_leased_is_not_parked",
        holds="leased_by IS NULL OR visible_at IS NOT NULL",
        message="leased_by % without visible_at: that is where a lease ends",
        values="leased_by",
        hint="Leave leased_by to the workers.",
    ),
    Rule(
        name="pgqueue_job_names_are_not_empty",
        holds=f"queue::pg_catalog.text {NE} '' AND task::pg_catalog.text {NE} ''",
        message='queue "%", task "%": neither is empty',
        values="queue, task",
        hint='Name the task; a queue that is left out is "default".',
    ),
    Rule(
        name="pgqueue_job_payload_shapes",
        holds=f"{TYPE_OF}(args) {EQ} 'array' AND {TYPE_OF}(kwargs) {EQ} 'object'"
        f" AND {TYPE_OF}(headers) {EQ} 'object' AND {TYPE_OF}(errors) {EQ} 'array'",
        message="args of JSON type %, kwargs %, headers %, errors %: args and errors"
        " are arrays, kwargs and headers are objects",
        values=f"{TYPE_OF}(args), {TYPE_OF}(kwargs), {TYPE_OF}(headers),"
        f" {TYPE_OF}(errors)",
        hint="Positional arguments go into args, [1, 2]; named ones into kwargs.",
    ),
    Rule(
        name="pgqueue_job_priority_range",
        holds=f"priority {GE} -100 AND priority {LE} 100",
        message="priority %: it is from -100 to 100",
        values="priority",
        hint="Higher goes first; 0 is the default.",
    ),
    Rule(
        name="pgqueue_job_times_are_readable",
        holds=" AND ".join(
            f"{name} {GE} {TIME_MIN} AND {name} {LT} {TIME_MAX}" for name in TIMES
        ),
        message=", ".join(f"{name} %" for name in TIMES)
        + ": each is from the year 1900 to 9998, and finite",
        values=", ".join(TIMES),
        hint="A time that does not matter is NULL.",
    ),
)

# All rules in one expression first: that is all that a sound row costs. An AND of three
# values is false if one rule is, and a rule that is NULL refuses nothing.
SOUND = " AND ".join(f"({rule.holds})" for rule in RULES)
REFUSALS = "".join(
    f"""
    IF ({rule.holds}) IS FALSE THEN
        RAISE 'pgqueue_job refuses {rule.message} ({rule.name}).', {rule.values}
            USING ERRCODE = 'check_violation', TABLE = 'pgqueue_job',
                  CONSTRAINT = '{rule.name}', HINT = '{rule.hint}';
    END IF;"""
    for rule in RULES
)
PARAMETERS = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())

FUNCTION = f"""
CREATE OR REPLACE FUNCTION pgqueue_check_job({PARAMETERS}) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF ({SOUND}) IS NOT FALSE THEN
        RETURN true;
    END IF;
    {REFUSALS}
    RETURN false;
END $$;
"""

# The CHECKs that the rules were before, as the server has stored them.
BEFORE = {
    "pgqueue_job_attempt_counts": """
        attempt >= 0 AND crashes >= 0 AND deliveries >= attempt AND max_attempts >= 1
    """,
    "pgqueue_job_lane_has_capacity": "lane_capacity IS NULL OR lane_capacity >= 1",
    "pgqueue_job_leased_is_not_parked": "leased_by IS NULL OR visible_at IS NOT NULL",
    "pgqueue_job_names_are_not_empty": "NOT queue = '' AND NOT task = ''",
    "pgqueue_job_payload_shapes": """
        jsonb_typeof(args) = 'array' AND jsonb_typeof(kwargs) = 'object'
        AND jsonb_typeof(headers) = 'object' AND jsonb_typeof(errors) = 'array'
    """,
    "pgqueue_job_priority_range": "priority >= -100 AND priority <= 100",
    "pgqueue_job_times_are_readable": " AND ".join(
        f"{name} >= {TIME_MIN} AND {name} < {TIME_MAX}" for name in TIMES
    ),
}

# Locks: ACCESS EXCLUSIVE on pgqueue_job, for a moment: NOT VALID reads no row, and all
# is one ALTER TABLE, so no row is written unchecked. OR REPLACE and IF EXISTS: what
# was interrupted before its end can be run again.
DROP = "DROP CONSTRAINT IF EXISTS"
SWAP = f"""
{FUNCTION}
ALTER TABLE pgqueue_job
    {DROP} pgqueue_job_is_sound,
    {", ".join(f"{DROP} {name}" for name in BEFORE)},
    ADD CONSTRAINT pgqueue_job_is_sound
        CHECK (pgqueue_check_job({", ".join(COLUMNS)})) NOT VALID;
"""
SWAP_BACK = f"""
ALTER TABLE pgqueue_job
    {", ".join(f"{DROP} {name}" for name in BEFORE)},
    {DROP} pgqueue_job_is_sound,
    {
    ", ".join(
        f"ADD CONSTRAINT {name} CHECK ({rule}) NOT VALID"
        for name, rule in BEFORE.items()
    )
};
DROP FUNCTION IF EXISTS pgqueue_check_job({", ".join(COLUMNS.values())});
"""

# Locks: SHARE UPDATE EXCLUSIVE while the table is read once, 1 µs a row: nobody who
# enqueues, claims or settles waits, only vacuum.
VALIDATE = "ALTER TABLE pgqueue_job VALIDATE CONSTRAINT pgqueue_job_is_sound"
VALIDATE_BACK = "ALTER TABLE pgqueue_job " + ", ".join(
    f"VALIDATE CONSTRAINT {name}" for name in BEFORE
)


class Migration(migrations.Migration):
    """Each step can be taken back."""

    # A transaction for each step, so that the lock of SWAP ends before the table is read.
    atomic = False

    dependencies = [("pgqueue", "0005_store")]

    operations = [
        migrations.RunSQL(migrations.RunSQL.noop, VALIDATE_BACK),
        # Not in the model: full_clean() would call the function and log its refusal.
        migrations.RunSQL(
            SWAP,
            SWAP_BACK,
            state_operations=[
                migrations.RemoveConstraint("job", name)
                for name in BEFORE
                if name != "pgqueue_job_payload_shapes"
            ],
        ),
        migrations.RunSQL(VALIDATE, migrations.RunSQL.noop),
    ]
