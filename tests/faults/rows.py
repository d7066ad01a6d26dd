"""
Rows: the fault matrix as a table, and a run of a row at some share of its size.

A row says what fails and how often, what runs meanwhile, which bites must be felt, and
what must hold besides what holds always (verdict.py). The numbers are of full size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tests.faults import checks, lane_checks, saga_checks, tick_checks
from tests.faults.capacities import LIMIT, QUEUE, QUEUES
from tests.faults.leaks import LITTER
from tests.faults.plan import (
    Fault,
    Load,
    Operation,
    Series,
    plan_faults,
    plan_operations,
    scaled,
)
from tests.faults.poison import KINDS as POISON

LEASE_SECONDS = 5.0

# What leaves a transaction open.
OPEN = ("transaction", "aborted", "autocommit")

SETTINGS = {
    "LEASE_SECONDS": LEASE_SECONDS,
    "POLL_INTERVAL_SECONDS": 1,
    "GRACE_SECONDS": 5,
}

# How wrong the clock of one worker is, and what another one takes for its zone.
CLOCK_WRONG_SECONDS = 90
ZONE_WRONG = "America/New_York"
# Workers of a row by their places: what is wrong with each.
FIVE = ("", "", "fast clock", "wrong zone", "")
FIVE_AND_SLOW = ("", "slow clock", "fast clock", "wrong zone", "")

# Each statement of a tick's transaction, before its commit, and after it.
TICK_POINTS = (
    *("tick.advanced", "tick.inserted", "tick.enqueued", "tick.issued"),
    "tick.committed",
)

# The points of a job's life.
JOB_POINTS = (
    *("claimed", "starting", "running", "performed", "ack.before", "ack.after"),
    *("retry.before", "retry.after", "dead.before", "dead.after"),
)
LANE_POINTS = ("claimed", "performed", "ack.after", "promote.before", "promote.after")

# Where those that run the steps of a saga die.
SAGA_POINTS = (*JOB_POINTS[:-2], "atomic.acked", "atomic.committed")
SAGAS = Load(
    jobs=2_000,
    sizes=(1, 1, 1, 5),
    tasks={"order": 1.0},
    seconds=(0.0, 0.02),
    failing_share=0.2,
    steps=saga_checks.STEPS,
)

# More than a run has, so that any of them is hit.
CONNECTIONS = 10_000

# SIGSTOP for a lease and three seconds more, of processes that hold a job.
PAUSES = Series(kind="pause_process", count=30, lasts=(8.0, 8.0), what=("busy",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the matrix."""

    title: str
    seconds: float  # Of the fault phase.
    seconds_min: float = 10.0  # Of a smaller run.
    seconds_short: float | None = None  # Of any smaller run, instead of a share.
    load: Load
    series: tuple[Series, ...] = ()
    workers: int = 2
    processes: int = 2
    threads: int = 4
    through_proxy: bool = False  # Workers reach the database over TCP.
    clients_through_proxy: bool = False
    schedules: str = ""  # The module that declares them.
    all_schedule: bool = False  # Every worker issues ticks, and not the leader alone.
    wrongs: tuple[str, ...] = ()  # By the place of a worker.
    settings: Mapping[str, Any] = field(default_factory=dict)  # Besides SETTINGS.
    points: Mapping[str, int] = field(default_factory=dict)  # Deaths at each, in all.
    must_bite: tuple[str, ...]  # Counters of which one at least must not be zero.
    drain_seconds: float = 30.0  # From the last fault until the backlog is gone.
    checks: tuple[Callable[..., Iterator[str]], ...] = ()

    @property
    def victims(self) -> int:
        """How many processes there are to harm."""
        return self.workers * self.processes


ROWS: dict[str, Row] = {
    "K1": Row(
        title="kill -9 of a random worker process",
        seconds=300,
        load=Load(jobs=20_000),
        series=(Series(kind="kill_process", count=150),),
        must_bite=("crashed",),
        checks=(checks.repeats_within_slots, checks.suspects_run_alone),
    ),
    "K2": Row(
        title="kill -9 at named points of a job's life",
        seconds=420,
        seconds_min=60,
        load=Load(jobs=25_000, failing_share=0.3, rejected_share=0.2),
        points=dict.fromkeys(JOB_POINTS, 200),
        processes=3,
        must_bite=("crashed",),
        drain_seconds=60,
        checks=(checks.every_point_was_reached,),
    ),
    "K3": Row(
        title="kill -9 of a whole worker, or of its supervisor alone",
        seconds=400,
        load=Load(jobs=8_000, seconds=(0.1, 1.0)),
        series=(
            Series(kind="kill_group", count=25, what=("group",)),
            Series(kind="kill_supervisor", count=25, what=("supervisor",)),
        ),
        workers=3,
        must_bite=("lapsed", "interrupted"),
        checks=(checks.orphans_leave_soon, checks.leases_are_free_soon),
    ),
    "K4": Row(
        title="clients killed inside a transaction, or cut off at its COMMIT",
        seconds=300,
        load=Load(
            jobs=50_000,
            sizes=(1, 50),
            seconds=(0.0, 0.002),
            rolled_back_share=0.1,
            endings={"kill_before": 50, "kill_after": 50, "cut": 50, "drop": 50},
        ),
        clients_through_proxy=True,
        must_bite=("unknown",),
        checks=(checks.clients_were_hit,),
    ),
    "A1": Row(
        title="atomic=True: kill -9, and SIGSTOP for lease + 3 s",
        seconds=300,
        # Slower than at full size: with a backlog, a lapsed lease waits behind older
        # jobs until its worker goes on, and then nothing was lost.
        seconds_min=45,
        load=Load(jobs=10_500, tasks={"atomic_work": 1.0}, seconds=(0.02, 0.2)),
        series=(
            Series(kind="kill_process", count=100),
            replace(PAUSES, count=30, count_min=5),
        ),
        must_bite=("stale", "lapsed"),
        drain_seconds=60,
        checks=(checks.effects_happen_once,),
    ),
    "P1": Row(
        title="SIGSTOP of worker processes for lease + 3 s",
        seconds=300,
        seconds_min=36,
        # Slots are left free for what is taken over: due jobs that waited before it
        # would start first.
        load=Load(jobs=1_600, slow_share=0.5, seconds=(0.2, 1.0)),
        series=(replace(PAUSES, count=200, together=8, first_after=3.0),),
        workers=3,
        processes=4,
        threads=4,
        must_bite=("stale",),
        drain_seconds=60,
        checks=(checks.pauses_were_refused,),
    ),
    "P2": Row(
        title="SIGSTOP of worker processes for 1 s, less than the lease",
        seconds=250,
        load=Load(jobs=5_000),
        series=(
            Series(kind="pause_process", count=500, lasts=(1.0, 1.0), what=("busy",)),
        ),
        must_bite=("paused",),
        checks=(checks.nothing_was_repeated,),
    ),
    "P3": Row(
        title="SIGSTOP of PostgreSQL's processes: of claims, settles, LISTEN, renewals",
        seconds=300,
        seconds_min=30,
        load=Load(jobs=5_000),
        series=(
            Series(
                kind="pause_backend",
                count=100,
                lasts=(3.0, 20.0),
                what=("claimer", "settler", "listener", "heartbeat"),
            ),
        ),
        must_bite=("held_up", "lapsed", "reconnected"),
        drain_seconds=60,
    ),
    "P4": Row(
        title="handlers that hold the interpreter for three leases",
        seconds=60,
        seconds_min=20,
        load=Load(jobs=1_000, mixed_in={"hog": ("15",)}, mixed_count=10),
        must_bite=("lapsed",),
        drain_seconds=90,
    ),
    "D1": Row(
        title="PostgreSQL crashes (stop -m immediate) and comes back",
        seconds=300,
        seconds_min=25,
        load=Load(jobs=10_000),
        series=(
            Series(
                kind="crash_server",
                count=15,
                count_min=2,
                lasts=(1.0, 3.0),
                first_after=2.0,
            ),
        ),
        must_bite=("reconnected",),
        checks=(checks.workers_lived_on, checks.back_soon, checks.few_lines),
    ),
    "D2": Row(
        title="PostgreSQL is stopped (-m fast), stays down, and starts",
        seconds=400,
        seconds_min=40,
        load=Load(jobs=4_000),
        series=(
            Series(
                kind="stop_server",
                count=1,
                is_scaled=True,
                lasts=(300.0, 300.0),
                first_after=4.0,
            ),
        ),
        must_bite=("reconnected",),
        checks=(
            checks.workers_lived_on,
            checks.back_soon,
            checks.few_lines,
            checks.idle_while_down,
        ),
    ),
    "D3": Row(
        title="pg_terminate_backend of random connections",
        seconds=300,
        load=Load(jobs=10_000),
        series=(Series(kind="terminate_backend", count=600, victims=CONNECTIONS),),
        must_bite=("reconnected",),
        checks=(checks.workers_lived_on,),
    ),
    "D4": Row(
        title="pg_cancel_backend of random connections",
        seconds=300,
        load=Load(jobs=10_000),
        series=(Series(kind="cancel_backend", count=600, victims=CONNECTIONS),),
        must_bite=("cancelled",),
        checks=(checks.workers_lived_on,),
    ),
    "D5": Row(
        title="short timeouts set on the role, and a table that is locked now and then",
        seconds=300,
        load=Load(jobs=60_000, tasks={"work": 0.998, "idle_in_transaction": 0.002}),
        series=(
            Series(kind="short_timeouts", count=1, is_scaled=True),
            Series(kind="lock_table", count=60, lasts=(0.1, 0.3), first_after=1.0),
        ),
        must_bite=("timed_out",),
        checks=(checks.workers_lived_on,),
    ),
    "D6": Row(
        title="REPEATABLE READ, then SERIALIZABLE, as the role's default",
        seconds=120,
        seconds_min=16,
        load=Load(jobs=10_000, failing_share=0.02),
        series=(
            Series(
                kind="isolation",
                count=2,
                is_scaled=True,
                what=("repeatable read", "serializable"),
            ),
        ),
        workers=2,
        processes=4,
        threads=2,
        must_bite=("isolated",),
        checks=(checks.workers_lived_on, checks.no_serialization_failure),
    ),
    "N1": Row(
        title="a black hole for LISTEN alone",
        seconds=120,
        seconds_min=36,
        load=Load(jobs=2_400, sizes=(1,), rolled_back_share=0, failing_share=0),
        series=(
            Series(
                kind="hole",
                count=1,
                is_scaled=True,
                lasts=(60.0, 60.0),
                first_after=5.0,
                what=("pgqueue listener",),
            ),
        ),
        through_proxy=True,
        must_bite=("late",),
        checks=(checks.poll_takes_over, checks.wakes_are_back),
    ),
    "N2": Row(
        title="a black hole for all connections of a worker, both ways and one way",
        seconds=300,
        seconds_min=36,
        # At any time three of the workers are in a hole; the others must keep up.
        load=Load(jobs=2_500, slow_share=0.1, seconds=(0.05, 0.5)),
        series=(
            Series(kind="hole", count=50, lasts=(5.0, 30.0), what=("", "one way")),
        ),
        workers=6,
        processes=1,
        through_proxy=True,
        must_bite=("stale", "lapsed"),
        drain_seconds=60,
        checks=(checks.workers_lived_on,),
    ),
    "N3": Row(
        title="TCP connections cut one by one",
        seconds=300,
        load=Load(jobs=10_000),
        series=(Series(kind="cut_connection", count=300, victims=CONNECTIONS),),
        through_proxy=True,
        must_bite=("reconnected",),
        checks=(checks.workers_lived_on,),
    ),
    "X1": Row(
        title="poison among good jobs, 1 : 100",
        seconds=120,
        seconds_min=20,
        load=Load(
            jobs=5_000,
            tasks={"probe": 1.0},
            failing_share=0,
            mixed_in={"poisonous": tuple(POISON)},
            mixed_count=50,
        ),
        must_bite=("crashed",),
        drain_seconds=60,
        checks=(
            checks.good_jobs_succeed,
            checks.poison_ends_right,
            checks.suspects_run_alone,
            checks.no_leaks,
        ),
    ),
    "X2": Row(
        title="handlers that leave a transaction open or aborted",
        seconds=60,
        load=Load(
            jobs=2_000,
            tasks={"probe": 1.0},
            failing_share=0,
            mixed_in={"litter": OPEN},
            mixed_count=300,
        ),
        must_bite=("littered",),
        checks=(checks.everything_succeeds, checks.no_leaks),
    ),
    "X3": Row(
        title="handlers that leave 100 things each in their connection",
        seconds=60,
        load=Load(
            jobs=2_000,
            tasks={"probe": 1.0},
            failing_share=0,
            mixed_in={"litter": tuple(kind for kind in LITTER if kind not in OPEN)},
            mixed_count=175,
        ),
        must_bite=("littered",),
        checks=(checks.everything_succeeds, checks.no_leaks),
    ),
    "Q1": Row(
        title="groups: kill -9, SIGSTOP for lease + 3 s, connections cut, failing jobs",
        seconds=300,
        seconds_min=45,
        load=Load(
            jobs=20_000,
            tasks={"grouped": 1.0},
            customers=200,
            open_seconds=(0.0, 0.05),
            failing_share=0.1,
        ),
        series=(
            Series(kind="kill_process", count=100),
            replace(PAUSES, count=30, count_min=4),
            Series(kind="terminate_backend", count=100, victims=CONNECTIONS),
        ),
        workers=3,
        must_bite=("lapsed",),
        drain_seconds=60,
        checks=(*lane_checks.ALWAYS, lane_checks.groups_keep_order),
    ),
    "Q2": Row(
        title="limits: kill -9 at named points, from the claim to the promotion",
        seconds=300,
        seconds_min=45,
        load=Load(
            jobs=20_000,
            tasks={"limited": 1.0},
            seconds=(0.02, 0.15),
            customers=3,
            open_seconds=(0.0, 0.05),
            failing_share=0.1,
        ),
        points=dict.fromkeys(LANE_POINTS, 60),
        workers=4,
        must_bite=("crashed",),
        drain_seconds=60,
        checks=(
            *lane_checks.ALWAYS,
            lane_checks.limits_are_reached,
            lane_checks.promoters_died,
        ),
    ),
    "Q3": Row(
        title="rates: kill -9, SIGSTOP for lease + 3 s, connections cut, failing jobs",
        seconds=300,
        seconds_min=45,
        load=Load(
            jobs=8_000,
            tasks={"paced": 1.0},
            seconds=(0.0, 0.02),
            # Now and then nobody is free, and then all are at once.
            slow_share=0.04,
            slow_seconds=(1.0, 2.0),
            customers=4,
            open_seconds=(0.0, 0.05),
            failing_share=0.1,
        ),
        series=(
            Series(kind="kill_process", count=100),
            replace(PAUSES, count=30, count_min=4),
            Series(kind="terminate_backend", count=100, victims=CONNECTIONS),
        ),
        workers=3,
        must_bite=("lapsed",),
        drain_seconds=90,
        checks=(lane_checks.rates_hold, lane_checks.rates_are_used),
    ),
    "Q4": Row(
        title="a queue's limit and rate: kill -9, SIGSTOP for lease + 3 s",
        seconds=200,
        seconds_min=20,
        load=Load(
            jobs=2_000,
            tasks={"metered": 1.0},
            seconds=(0.05, 0.3),
            # Now and then all places are taken, and then several are free at once.
            slow_share=0.1,
            slow_seconds=(0.8, 1.6),
            failing_share=0.1,
        ),
        settings={"QUEUES": QUEUES},
        series=(
            Series(kind="kill_process", count=80),
            replace(PAUSES, count=20, count_min=2),
        ),
        workers=3,
        must_bite=("lapsed",),
        drain_seconds=90,
        checks=lane_checks.OF_QUEUES,
    ),
    "Q5": Row(
        title="turns: kill -9, and one customer with nearly all of the jobs",
        # At any size more comes than is done, so that the one always has a backlog.
        seconds=160,
        seconds_min=16,
        load=Load(
            jobs=10_000,
            tasks={"shared": 1.0},
            seconds=(0.1, 0.3),
            customers=5,
            loud_share=0.9,
        ),
        series=(Series(kind="kill_process", count=80),),
        threads=2,
        must_bite=("crashed",),
        drain_seconds=200,
        checks=lane_checks.OF_TURNS,
    ),
    "G1": Row(
        title="sagas of 4 steps, 20 % give up: kill -9 at named points, and at random",
        seconds=400,
        seconds_min=50,
        load=SAGAS,
        points={**dict.fromkeys(SAGA_POINTS, 25), "dead.after": 10, "dead.before": 10},
        series=(Series(kind="kill_process", count=100),),
        processes=3,
        must_bite=("crashed",),
        drain_seconds=60,
        checks=(
            *saga_checks.ALWAYS,
            saga_checks.people_are_seldom_needed,
            checks.every_point_was_reached,
        ),
    ),
    "G2": Row(
        title="sagas whose compensations fail three times, or for good; kill -9",
        seconds=200,
        seconds_min=20,
        load=replace(
            SAGAS, jobs=1_000, failing_share=0.4, moods=("", "reluctant", "stubborn")
        ),
        series=(Series(kind="kill_process", count=40),),
        processes=3,
        must_bite=("waiting",),
        drain_seconds=60,
        checks=(
            *saga_checks.ALWAYS,
            saga_checks.the_reluctant_are_retried,
            saga_checks.the_stubborn_wait_for_people,
        ),
    ),
    "R1": Row(
        title="schedules by the second: kill -9, SIGSTOP, crashes of the server",
        seconds=600,
        seconds_short=16,
        schedules="by_the_second",
        load=Load(jobs=600),
        series=(
            Series(kind="kill_process", count=100),
            Series(kind="kill_group", count=30),
            Series(kind="kill_supervisor", count=10),
            Series(kind="pause_process", count=20, lasts=(8.0, 8.0)),
            Series(kind="crash_server", count=3, lasts=(1.0, 3.0), first_after=3.0),
        ),
        workers=5,
        processes=1,
        threads=2,
        wrongs=FIVE,
        must_bite=("handed_over",),
        drain_seconds=60,
        checks=(*tick_checks.ALWAYS, tick_checks.ticks_are_exact),
    ),
    "R2": Row(
        title="schedules of each policy, and no worker for ten ticks and more",
        seconds=150,
        seconds_short=17,
        schedules="by_policy",
        load=Load(jobs=400),
        series=(Series(kind="kill_all", count=7, lasts=(11.0, 13.0), first_after=4.0),),
        workers=5,
        processes=1,
        threads=6,
        must_bite=("caught_up",),
        drain_seconds=60,
        checks=(
            *tick_checks.ALWAYS,
            tick_checks.ticks_follow_policy,
            tick_checks.overlaps_are_skipped,
        ),
    ),
    "C3": Row(
        title="five schedulers at once, clocks 90 s off, killed within their ticks",
        seconds=300,
        seconds_short=12,
        schedules="by_the_second",
        all_schedule=True,
        load=Load(jobs=600),
        points=dict.fromkeys(TICK_POINTS, 20),
        workers=5,
        processes=1,
        threads=2,
        wrongs=FIVE_AND_SLOW,
        must_bite=("handed_over",),
        drain_seconds=60,
        checks=(
            *tick_checks.ALWAYS,
            tick_checks.ticks_are_exact,
            tick_checks.every_clock_took_part,
            checks.every_point_was_reached,
        ),
    ),
}


def _small(name: str, *, seconds: float, jobs: int, count: int) -> Row:
    """Return a row whose every series has *count* faults, for the broken builds."""
    row = ROWS[name]
    return replace(
        row,
        seconds=seconds,
        load=replace(row.load, jobs=jobs),
        series=tuple(replace(series, count=count) for series in row.series),
    )


def _hot() -> Row:
    """Return a piece of Q1 whose jobs make way when they fail, and hardly a fault."""
    load = replace(
        ROWS["Q1"].load,
        jobs=400,
        tasks={"yielding": 1.0},
        seconds=(0.05, 0.1),
        customers=6,
        rolled_back_share=0.0,
        failing_share=0.3,
    )
    series = (Series(kind="kill_process", count=2),)
    return replace(ROWS["Q1"], seconds=8, load=load, series=series)


# What finds out the broken builds; no row of the matrix, only a piece of one.
SMALL: dict[str, Row] = {
    "K1-small": _small("K1", seconds=10, jobs=1_000, count=8),
    "P1-small": _small("P1", seconds=14, jobs=70, count=8),
    # One process, whose jobs outlast the server's absence, and that the lease.
    "D2-small": replace(
        ROWS["D2"],
        seconds=16,
        load=Load(jobs=6, sizes=(1,), slow_share=1.0, slow_seconds=(16.0, 18.0)),
        series=(
            Series(kind="stop_server", count=1, lasts=(9.0, 9.0), first_after=4.0),
        ),
        workers=1,
        processes=1,
        threads=8,
        checks=(checks.nothing_runs_beside_itself,),
    ),
    "D6-small": _small("D6", seconds=10, jobs=800, count=2),
    # Few lanes that always have more jobs, and first that which has failed, once it is
    # due again: whoever counts a little later finds another first job.
    "Q1-small": _hot(),
    "Q2-small": replace(_small("Q2", seconds=10, jobs=800, count=0), points={}),
    # One worker whose threads are all held up now and then, and then free at once.
    "Q3-small": replace(
        _small("Q3", seconds=12, jobs=400, count=1),
        workers=1,
        processes=1,
    ),
    # No rate, and more threads than places: whoever takes over has some for more.
    "Q4-small": replace(
        _small("Q4", seconds=10, jobs=200, count=1),
        load=replace(ROWS["Q4"].load, jobs=200, seconds=(0.2, 0.6), slow_share=0.0),
        settings={"QUEUES": {QUEUE: {"concurrency": LIMIT}}},
        series=(replace(PAUSES, count=1, first_after=2.0),),
        threads=8,
    ),
    # Places for many times as many as the rate lets go.
    "Q4-quick": replace(
        ROWS["Q4"],
        seconds=4,
        series=(),
        load=replace(ROWS["Q4"].load, jobs=200, seconds=(0.0, 0.02), slow_share=0.0),
    ),
    "Q5-small": _small("Q5", seconds=6, jobs=500, count=1),
    "G1-small": replace(
        _small("G1", seconds=8, jobs=80, count=2), points={"ack.after": 4}
    ),
    "C3-small": replace(
        _small("C3", seconds=8, jobs=20, count=0),
        points=dict.fromkeys(TICK_POINTS, 2),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A row, a seed and a share of the size: all that decides a plan."""

    name: str
    row: Row
    seed: int
    share: float

    @classmethod
    def of(cls, name: str, *, seed: int, share: float) -> Run:
        """Return the run of the row called *name*."""
        row = ROWS[name] if name in ROWS else SMALL[name]
        return cls(name=name, row=row, seed=seed, share=share)

    @property
    def seconds(self) -> float:
        """Length of its fault phase."""
        row = self.row
        if self.share >= 1:
            return row.seconds
        return row.seconds_short or max(row.seconds * self.share, row.seconds_min)

    def faults(self) -> list[Fault]:
        """Return its faults, in order."""
        return plan_faults(
            self.row.series,
            row=self.name,
            seed=self.seed,
            share=self.share,
            seconds=self.seconds,
            victims=self.row.victims,
        )

    def operations(self, client: int) -> Iterator[Operation]:
        """Yield the transactions of a client."""
        return plan_operations(
            self.row.load,
            row=self.name,
            seed=self.seed,
            share=self.share,
            seconds=self.seconds,
            client=client,
        )

    def deaths(self, count: int) -> int:
        """Return how often processes die at a point that is wanted *count* times."""
        return scaled(count, self.share)

    def endings(self) -> int:
        """Return how many transactions of clients end by a fault of their own."""
        endings = self.row.load.endings.values()
        return sum(scaled(count, self.share) for count in endings)

    def options(self) -> dict[str, Any]:
        """Return everything that decides the run, for its report."""
        told = asdict(self.row)
        told["checks"] = [check.__name__ for check in self.row.checks]
        return {
            **told,
            "row": self.name,
            "seed": self.seed,
            "share": self.share,
            "phase_seconds": self.seconds,
            "settings": {**SETTINGS, **self.row.settings},
        }
