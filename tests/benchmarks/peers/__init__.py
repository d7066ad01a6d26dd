"""Every peer, in the order of their turns."""

from __future__ import annotations

from tests.benchmarks.peer import Peer
from tests.benchmarks.peers.django_pgqueue import PEER as DJANGO_PGQUEUE
from tests.benchmarks.peers.django_tasks_db import PEER as DJANGO_TASKS_DB
from tests.benchmarks.peers.graphile_worker import PEER as GRAPHILE_WORKER
from tests.benchmarks.peers.pg_boss import PEER as PG_BOSS
from tests.benchmarks.peers.pgqueuer import PEER as PGQUEUER
from tests.benchmarks.peers.procrastinate import PEER as PROCRASTINATE
from tests.benchmarks.peers.yardstick import PEER as YARDSTICK

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        YARDSTICK,
        DJANGO_PGQUEUE,
        PROCRASTINATE,
        PGQUEUER,
        DJANGO_TASKS_DB,
        GRAPHILE_WORKER,
        PG_BOSS,
    )
}
