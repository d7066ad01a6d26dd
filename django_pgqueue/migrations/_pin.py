"""
Pin: functions of ours find what they name in the schema that they stand in.

A migration that makes or replaces a function ends with pin(…) of its name, since CREATE
OR REPLACE forgets what a function had before. tests/models/test_pins.py fails for a
function that no migration has pinned; docs/contributing/decisions has the reason.
"""

# pg_catalog is not said, and so comes first: what is said first is where a function
# would make its tables. pg_temp is said, or it would come before all others. The schema
# is the one that holds our tables, however the migrating session has come to it.
#
# Locks: none that a call of the function waits for.
PIN = """
DO $do$
DECLARE
    home regnamespace := (SELECT c.relnamespace FROM pg_catalog.pg_class c
                           WHERE c.oid = 'pgqueue_job'::regclass);
    routine regprocedure;
BEGIN
    FOR routine IN SELECT p.oid FROM pg_catalog.pg_proc p
                    WHERE p.pronamespace = home AND p.proname = ANY ('{%(names)s}')
    LOOP
        EXECUTE pg_catalog.format('ALTER ROUTINE %%s %(clause)s', routine, home);
    END LOOP;
END $do$;
"""


def pin(*names: str) -> str:
    """Return the SQL that pins the functions *names*, whatever their parameters."""
    return _of(names, "SET search_path = %2$s, pg_temp")


def unpin(*names: str) -> str:
    """Return the SQL that lets them look into the caller's search_path again."""
    return _of(names, "RESET search_path")


def _of(names: tuple[str, ...], clause: str) -> str:
    return PIN % {"names": ",".join(names), "clause": clause}
