"""
Operate queues: what people say of how many jobs of a queue are claimed.

The admin and the command line share these functions. Each opens a transaction on the
database of the jobs (a savepoint, where one is open), and wakes the queue after the
commit. Until then nobody claims from a queue with a rate, so call these at the end of a
transaction.
"""

from __future__ import annotations

from django_pgqueue.bounds import LANE_CAPACITY_MAX
from django_pgqueue.exceptions import InvalidOption, shown
from django_pgqueue.options.checks import check_queue
from django_pgqueue.options.lanes import Rate
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.queues import queue_limits as limits
from django_pgqueue.tasks import database


def set_concurrency(queue: str, jobs: int | None) -> bool:
    """
    Let *jobs* of *queue* run at a time, on all workers together.

    What was claimed before goes on, and nothing is claimed until there is room. Jobs
    that were claimed while the queue had no concurrency are not counted.

    Args:
        queue: Its name; it need not have any job yet.
        jobs: 1 to 100,000, in place of what the settings say; None: what they say.

    Returns:
        False if it was so already.

    Raises:
        InvalidOption: *queue* is no queue name, or *jobs* is out of its range.
    """
    check_queue(queue)
    if jobs is not None and (
        isinstance(jobs, bool)
        or not isinstance(jobs, int)
        or not 1 <= jobs <= LANE_CAPACITY_MAX
    ):
        raise InvalidOption(
            f"jobs={shown(jobs)}: it must be a whole number from 1 to "
            f"{LANE_CAPACITY_MAX:,}, or None for what the settings say."
        )
    with database.transaction() as (connection, cursor):
        is_done = limits.set_concurrency(cursor, queue, jobs)
        wake_after_commit(connection, queue)
    return is_done


def set_rate(queue: str, rate: Rate | None) -> bool:
    """
    Let jobs of *queue* start at a rate, on all workers together.

    Args:
        queue: Its name; it need not have any job yet.
        rate: Without a key, in place of what the settings say; None: what they say.

    Returns:
        False if it was so already.

    Raises:
        InvalidOption: *queue* is no queue name, or *rate* is none or has a key.
    """
    check_queue(queue)
    if rate is not None and (not isinstance(rate, Rate) or rate.key is not None):
        raise InvalidOption(
            f"rate={shown(rate)}: it must be a Rate without a key, such as "
            f'Rate("100/m", burst=5), or None for what the settings say.'
        )
    spacing, burst = (None, None) if rate is None else (rate.spacing, rate.burst)
    with database.transaction() as (connection, cursor):
        is_done = limits.set_rate(cursor, queue, spacing, burst)
        wake_after_commit(connection, queue)
    return is_done
