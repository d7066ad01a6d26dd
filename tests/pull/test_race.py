"""Receivers in several processes, and no worker: lanes hold, and nobody starves."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.harness.waiting import patience

pytestmark = pytest.mark.django_db(transaction=True)

LANES, PER_LANE, PLAIN = 7, 12, 40


@pytest.fixture
def race(cursor):
    cursor.execute(
        "CREATE TABLE race (id bigserial, lane text, number int, delivery int,"
        " is_end boolean)"
    )
    cursor.execute("SELECT pgqueue_declare_queue('race', 60, 100)")
    yield cursor
    cursor.execute("DROP TABLE race")


def test_a_lane_has_one_message_out_whoever_receives(race, conninfo):
    """Four processes take from lanes and from beside them: each message ends once, and
    those of a lane begin and end in order, one after the other."""
    race.execute(
        "SELECT pgqueue_send_many('race', jsonb_agg(n ORDER BY n), lanes =>"
        " jsonb_agg('l' || n %% %s ORDER BY n)) FROM generate_series(1, %s) n",
        [LANES, LANES * PER_LANE],
    )
    race.execute(
        "SELECT pgqueue_send_many('race', jsonb_agg(1000 + n))"
        " FROM generate_series(1, %s) n",
        [PLAIN],
    )
    receivers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.pull.receiver", conninfo, str(seed)]
        )
        for seed in range(4)
    ]
    assert [0] * 4 == [each.wait(60 * patience()) for each in receivers]

    race.execute("SELECT state, count(*) FROM pgqueue_archived_job GROUP BY 1")
    assert [("succeeded", LANES * PER_LANE + PLAIN)] == race.fetchall()
    race.execute(
        "SELECT sum(cardinality(runs)) FROM pgqueue_pull_end"
        " WHERE outcome = 'succeeded'"
    )
    assert (LANES * PER_LANE + PLAIN,) == race.fetchone()
    for lane in range(LANES):
        race.execute(
            "SELECT number, delivery, is_end FROM race WHERE lane = %s ORDER BY id",
            [f"l{lane}"],
        )
        notes = race.fetchall()
        # Each begin is followed by its own end, and no number comes after a later one.
        assert [note[:2] for note in notes[::2]] == [note[:2] for note in notes[1::2]]
        assert [False, True] * (len(notes) // 2) == [is_end for *_, is_end in notes]
        assert sorted(notes, key=lambda note: note[0]) == notes
        assert PER_LANE == len({number for number, *_ in notes})
