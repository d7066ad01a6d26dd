"""Files of mails: kept once, and for as long as a mail has them, beside any purge."""

from __future__ import annotations

import random
import threading
from datetime import timedelta

import pytest

from django_pgqueue.models import Job, MailFile, MailFileUse
from django_pgqueue.queues import mail_files
from django_pgqueue.queues.mail_files import fetch, keep, purge, use
from tests.harness.factories import make_archived_job, make_dead_letter, make_job

DAY = timedelta(days=1)
PDF = {"a" * 64: b"%PDF"}
(DIGEST,) = PDF


@pytest.fixture
def always_due(monkeypatch):
    """Whatever is stored or looked at is to be looked at again at once."""
    monkeypatch.setattr(mail_files, "LOOK_AGAIN", -DAY)


def send(cursor, job=None, files=PDF):
    """Store a job with files, as the backend does; return its id."""
    keep(cursor, files)
    job = job or make_job().pk
    use(cursor, [(digest, job) for digest in files])
    return job


def purged(cursor, **said):
    """Purge in a transaction, as the leader does."""
    with cursor.connection.transaction():
        return purge(cursor, **{"archive_keep": -2 * DAY, **said})


def test_the_same_bytes_are_kept_once(cursor):
    """A file that is there is not sent again; another one is, beside it."""
    two = {**PDF, "b" * 64: b"GIF"}
    with cursor.connection.transaction():
        jobs = [
            send(cursor),
            send(cursor, files=dict.fromkeys(PDF)),
            send(cursor, None, two),
        ]

    assert {DIGEST: b"%PDF", "b" * 64: b"GIF"} == fetch(cursor, [*two, "c" * 64])
    assert 3 == len({*jobs})
    assert 4 == MailFileUse.objects.count()


def test_a_file_stays_while_its_job_is_in_any_table(cursor, always_due):
    """Also for another mail, when the first has gone."""
    rows = [make_job(), make_dead_letter(), make_archived_job()]
    with cursor.connection.transaction():
        for row in rows:
            send(cursor, row.pk)

    for left, row in zip((2, 1, 0), rows, strict=True):
        assert 0 == purged(cursor).files
        row.delete()
        purged(cursor)
        assert left == MailFileUse.objects.count()
    assert 0 == MailFile.objects.count()


# Beside a purge -----------------------------------------------------------------------


def test_senders_and_purges_lose_and_leave_nothing(new_cursor, always_due):
    """Of mails that are stored, rolled back and deleted while two leaders purge."""
    wrong, sent, is_over = [], [], threading.Event()

    def sender(seed):
        chance, cursor = random.Random(seed), new_cursor()
        mine = []
        for number in range(150):
            job = 1_000 * seed + number
            is_kept = chance.random() < 0.7
            with cursor.connection.transaction(force_rollback=not is_kept):
                keep(cursor, PDF)
                cursor.execute(
                    "INSERT INTO pgqueue_job (id, task, queue) VALUES (%s, 'm', 'q')",
                    [job],
                )
                use(cursor, [(DIGEST, job)])
            if is_kept:
                mine.append(job)
            while mine and chance.random() < 0.6:
                cursor.execute("DELETE FROM pgqueue_job WHERE id = %s", [mine.pop()])
            if mine and fetch(cursor, PDF) != PDF:
                wrong.append(job)
        sent.append(seed)

    def purger():
        cursor = new_cursor()
        while not is_over.is_set():
            purged(cursor)

    senders = [threading.Thread(target=sender, args=[seed]) for seed in (1, 2)]
    purgers = [threading.Thread(target=purger) for _ in range(2)]
    for thread in (*senders, *purgers):
        thread.start()
    for thread in senders:
        thread.join()
    is_over.set()
    for thread in purgers:
        thread.join()

    assert {1, 2} == {*sent}
    assert [] == wrong
    Job.objects.all().delete()
    purged(new_cursor())
    assert (0, 0) == (MailFile.objects.count(), MailFileUse.objects.count())
