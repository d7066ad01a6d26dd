"""
People: what they do of sagas that wait for them, once the backlog is gone.

``python -m tests.faults.people`` redrives every second dead letter of a workflow, since
its cause is mended, and sets the others aside, since they were done by hand.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.stage import Stage

SECONDS_MAX = 60.0

# What waits for people, and why.
WAITING = """
SELECT d.id, w.key, w.state, d.reason
  FROM pgqueue_dead_letter d JOIN pgqueue_workflow w ON w.id = d.workflow_id
 ORDER BY d.id
"""


def act(stage: Stage) -> list[tuple[int, str, str, str]]:
    """Let people see to all dead letters; return (job, saga, state, reason) of each."""
    with stage.server.connect() as connection:
        waiting = connection.execute(WAITING).fetchall()
    if waiting:
        subprocess.run(
            [sys.executable, "-m", "tests.faults.people"],
            cwd=stage.build,
            env=stage.environment(stage.server.database, {}),
            check=True,
            timeout=SECONDS_MAX,
        )
    return waiting  # type: ignore[return-value]


def main() -> None:
    """See to all dead letters there are."""
    import django

    django.setup()
    from django_pgqueue.models import DeadLetter
    from django_pgqueue.tasks import operate
    from tests.faults.saga_tasks import people_came

    people_came().touch()
    ids = list(DeadLetter.objects.order_by("id").values_list("id", flat=True))
    redriven = operate.redrive(ids[::2])
    aside = operate.set_aside(ids[1::2], by="people", reason="done by hand")
    assert sorted(ids) == sorted([*redriven, *aside]), "some were not to be moved"


if __name__ == "__main__":
    main()
