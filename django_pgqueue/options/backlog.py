"""Backlog: how many jobs of a subscription may wait, and what is done beyond that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from django_pgqueue.bounds import DEPTH_MAX_MAX
from django_pgqueue.exceptions import DeclarationError, shown

OnBacklog = Literal["pause", "drop_oldest", "refuse"]
ON_BACKLOG: tuple[OnBacklog, ...] = ("pause", "drop_oldest", "refuse")


@dataclass(frozen=True, slots=True)
class Backlog:
    """
    At most so many jobs of a subscription that have not ended.

        @subscribe("clicks", queue="stats", backlog=Backlog(100_000, on_full="pause"))
        def count(message: Message) -> None: ...

    The worker that leads counts about once a second, so that there may be as many more
    as are published in some seconds.

    Args:
        depth_max: How many, 1 to 1,000,000.
        on_full: "pause": messages make no jobs, and stay in the log, from which the
            jobs are made when half of the backlog is gone: each message has its job,
            unless retention is faster. "drop_oldest": those that have waited for
            longest are cancelled. "refuse": publish() raises QueueFull.

    Raises:
        DeclarationError: A value is none of these.
    """

    depth_max: int
    on_full: OnBacklog = "pause"

    def __post_init__(self) -> None:
        most = self.depth_max
        if (
            isinstance(most, bool)
            or not isinstance(most, int)
            or not 1 <= most <= DEPTH_MAX_MAX
        ):
            raise DeclarationError(
                f"Backlog({shown(most)}): it must be a whole number from 1 to "
                f"{DEPTH_MAX_MAX:,}."
            )
        if self.on_full not in ON_BACKLOG:
            raise DeclarationError(
                f"Backlog(on_full={shown(self.on_full)}): it must be 'pause', "
                f"'drop_oldest' or 'refuse'."
            )
