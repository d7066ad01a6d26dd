# Public names for type checkers; tests/test_public_api.py compares them.
# ruff: noqa: I001  # Names of one module stay together.

from django_pgqueue.testing.asserting import (
    assert_enqueued as assert_enqueued,
    assert_not_enqueued as assert_not_enqueued,
)
from django_pgqueue.testing.capturing import (
    Captured as Captured,
    capture as capture,
)
from django_pgqueue.testing.draining import (
    DRAIN_JOBS_MAX as DRAIN_JOBS_MAX,
    Drained as Drained,
    Ran as Ran,
    drain as drain,
    immediate as immediate,
)
from django_pgqueue.testing.frozen import (
    Clock as Clock,
    freeze as freeze,
)
from django_pgqueue.testing.groups import drain_group as drain_group
from django_pgqueue.testing.repeating import (
    crash_once as crash_once,
    redeliver as redeliver,
)
