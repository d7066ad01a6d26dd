"""Real workers for these tests."""

from tests.harness.worker_process import start_worker, the_ledger

__all__ = ["start_worker", "the_ledger"]
