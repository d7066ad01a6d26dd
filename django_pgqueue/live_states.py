"""
Live states: what a job does that is not done. Derived from its row, and never stored.

The one table of them: queues/ and runs/ make SQL of it, models/ Django's expressions.
Of a step of a workflow, one state is derived as well: that it never starts.
"""

from __future__ import annotations

# The state whose test is the first to hold, of a column; REST where none does.
TESTS = (
    ("parked", "visible_at", "IS NULL"),
    # A lease that has run out is due like any other.
    ("ready", "visible_at", "<= statement_timestamp()"),
    ("running", "leased_by", "IS NOT NULL"),
    ("retrying", "attempt", "> 0"),
)
REST = "scheduled"


def live_state(row: str = "pgqueue_job") -> str:
    """Return the SQL expression for the state of *row*, a table or its alias."""
    cases = [
        f"WHEN {row}.{column} {test} THEN '{state}'" for state, column, test in TESTS
    ]
    return f"CASE {' '.join(cases)} ELSE '{REST}' END"


# Of workflows that go on.
LIVE_WORKFLOWS = ("running", "compensating")

# Of a step that never starts; its row says that it waits.
UNNEEDED = "unneeded"


def state_of_step(state: str, kind: str, *, within: str) -> str:
    """Return the *state* of a step, or UNNEEDED; *within*: that of its workflow."""
    if state != "waiting" or within in LIVE_WORKFLOWS:
        return state
    # A redrive lets other workflows go on, and then their steps run; not callbacks.
    is_unneeded = within == "compensated" or kind != "step"
    return UNNEEDED if is_unneeded else state
