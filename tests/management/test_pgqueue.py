"""`manage.py pgqueue`: what it prints, what it does, and its exit statuses."""

from __future__ import annotations

import getpass
import io
import json
import os
import re
import subprocess
import sys
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from django_pgqueue.management.cli import queues
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Lane, Queue
from django_pgqueue.operators import bulk_acts
from django_pgqueue.operators.human import shown
from django_pgqueue.tasks import operate
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_job,
    make_jobs,
    make_leased_job,
    make_schedule,
)
from tests.harness.minutes import in_minutes
from tests.harness.waiting import patience
from tests.harness.worker_process import REPOSITORY

DONE, NOTHING, USAGE, UNUSABLE = 0, 1, 2, 3

LATER = timedelta(hours=1)

ESCAPES = "\x1b[31mred\x1b[0m\u202etxt.\r\n\x07"


def run(*arguments):
    """Return (status, standard output, standard error) of `pgqueue ARGUMENTS`."""
    out, err = io.StringIO(), io.StringIO()
    status = DONE
    try:
        call_command("pgqueue", *map(str, arguments), stdout=out, stderr=err)
    except SystemExit as end:
        status = end.code
    except CommandError as error:
        # argparse has no status of its own when it is called by call_command().
        status = getattr(error, "returncode", USAGE)
        err.write(f"{error}\n")
        status = USAGE if str(error).startswith("Error:") else status
    return status, out.getvalue(), err.getvalue()


def told(*arguments):
    """Return (status, the JSON object) of `pgqueue ARGUMENTS --json`."""
    status, out, _ = run(*arguments, "--json")
    (line,) = out.splitlines()
    return status, json.loads(line)


def process(*arguments, **environment):
    """Run Python as a process of its own, on the test database."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **process_environment(), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60 * patience(),
    )


def process_environment(**told):
    name = connection.settings_dict["NAME"]
    told = {"databases": {"default": {"NAME": name}}, "pgqueue": {}, **told}
    return {
        "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
        "PYTHONPATH": str(REPOSITORY),
        "PGQUEUE_TEST_WORKER": json.dumps(told),
    }


# Text of data ------------------------------------------------------------------------


def test_data_is_shown_without_control_characters():
    """No escape sequence, no new line, no change of direction, no surrogate."""
    assert ["", "5", "世界 é 😀"] == [shown(each) for each in (None, 5, "世界 é 😀")]
    text = "\x1b[31mred\r\n\t\x00\u202e\u2028\ud800"
    assert r"\x1b[31mred\r\n\t\x00\u202e\u2028\ud800" == shown(text)


# stats -------------------------------------------------------------------------------


def test_stats_have_a_line_for_each_queue(db):
    """With jobs by state, the age of the oldest, and who paused it and why."""
    make_jobs(3, queue="mail", visible_at=timedelta(minutes=-10))
    make_job(queue="mail", visible_at=LATER)
    make_leased_job(queue="mail")
    make_dead_letter(queue="mail")
    Queue.objects.create(
        name="mail", paused_at="2026-01-01T00:00Z", paused_by="ada", pause_reason="why"
    )
    make_job(queue="other")

    status, out, _ = run("stats")
    assert DONE == status
    assert re.search(
        r"^mail +3 +1 +0 +1 +0 +1 +10 min +paused by ada: why$",
        in_minutes(out),
        re.MULTILINE,
    )
    assert re.search(r"^other +1 +0 ", out, re.MULTILINE)

    status, found = told("stats", "--queue", "mail")
    assert DONE == status
    (mail,) = found["queues"]
    assert {"name": "mail", "ready": 3, "running": 1, "scheduled": 1, "dead": 1} == {
        key: mail[key] for key in ("name", "ready", "running", "scheduled", "dead")
    }
    assert "ada" == mail["paused_by"]


def test_stats_are_printed_again_until_somebody_interrupts(db, monkeypatch):
    """So often as is said, with what is there by then."""
    naps = []

    def sleep(seconds):
        naps.append(seconds)
        if len(naps) == 2:
            raise KeyboardInterrupt
        make_job(queue="mail")

    monkeypatch.setattr(queues.time, "sleep", sleep)

    status, out, _ = run("stats", "--watch", "5")

    assert (DONE, [5, 5]) == (status, naps)
    first, second = out.split("\n\n")
    assert "There is no queue yet." == first
    assert re.search(r"^mail +1 ", second, re.MULTILINE)


# jobs --------------------------------------------------------------------------------


@pytest.fixture
def one_of_each(db):
    """The id of a job in each state."""
    return {
        "ready": make_job().pk,
        "running": make_leased_job(queue="mail").pk,
        "scheduled": make_job(visible_at=LATER, headers={"tags": ["vip"]}).pk,
        "retrying": make_job(visible_at=LATER, attempt=1, deliveries=1).pk,
        "parked": make_job(visible_at=None).pk,
        "succeeded": make_archived_job().pk,
        "cancelled": make_archived_job(state="cancelled").pk,
        "expired": make_archived_job(state="expired").pk,
        "dead": make_dead_letter(task="tests.other").pk,
    }


def test_jobs_lists_live_ones_and_others_by_their_state(one_of_each):
    """Each with the state that states.md derives; the newest first."""
    _, found = told("jobs")
    live = ["parked", "retrying", "scheduled", "running", "ready"]
    assert live == [job["state"] for job in found["jobs"]]

    for state, job_id in one_of_each.items():
        status, found = told("jobs", "--state", state)
        assert DONE == status
        assert [(job_id, state)] == [(j["id"], j["state"]) for j in found["jobs"]]

    _, found = told("jobs", *(f"--state={state}" for state in one_of_each))
    assert list(reversed(one_of_each)) == [job["state"] for job in found["jobs"]]


def test_jobs_by_queue_task_and_tag(one_of_each):
    """Filters add up; what matches nothing has status 1."""

    def ids(*filters):
        return [job["id"] for job in told("jobs", *filters)[1]["jobs"]]

    assert [one_of_each["running"]] == ids("--queue=mail")
    assert [one_of_each["scheduled"]] == ids("--tag=vip")
    assert [] == ids("--tag=vip", "--queue=mail")
    assert [one_of_each["dead"]] == ids("--task=tests.other", "--state=dead")
    status, out, err = run("jobs", "--task", "tests.app.tasks.nop")
    assert (NOTHING, "No job matches.\n") == (status, out)
    assert "Did you mean 'tests.app.tasks.noop'?" in err


def test_a_table_is_not_cut_off_in_a_pipe_and_shows_no_escapes(db):
    """What a job's names hold cannot steer a terminal."""
    make_job(task="t" * 200)
    make_job(task=ESCAPES)

    _, out, _ = run("jobs")

    assert "t" * 200 in out
    assert shown(ESCAPES) in out
    assert not set(out) & {"\x1b", "\u202e", "\r", "\x07"}


# show --------------------------------------------------------------------------------

ERROR = {
    "kind": "error",
    "type": "shop.Unlucky",
    "message": "password=hunter2",
    "traceback": "File:\n  f(password='hunter2')\nshop.Unlucky: password=hunter2\n",
    "attempt": 1,
    "delivery": 1,
    "worker": "w-1",
    "at": "2026-11-21T10:00:00+00:00",
}


def test_show_tells_all_and_hides_secrets(db):
    """Arguments, headers, errors with tracebacks; --show-payload shows all of them."""
    log = [[0.25, f"password=hunter2 {ESCAPES}"], [12.5, "charged"], 5]
    job = make_dead_letter(
        schedule_id=make_schedule(name="nightly report").pk,
        task="tests.app.tasks.fails",
        args=["a message"],
        kwargs={"api_key": "hunter2"},
        headers={
            "Authorization": "hunter2",
            "tags": ["vip"],
            "pgqueue.reprocessed_at": "2026-01-01T00:00:00Z",
        },
        errors=[ERROR, {**ERROR, "attempt": 2, "log": log}],
    )

    _, out, _ = run("show", f"#{job.pk}")
    assert "hunter2" not in out
    assert "dead (exhausted)" in out
    assert '["a message"]' in out
    assert "Error 2 of 2: shop.Unlucky" in out
    assert "    f(password=[redacted])\n" in out
    assert "  schedule     nightly report\n" in out
    assert "  reprocessed  2026-01-01 00:00:00" in out
    assert "0.250 s  password=[redacted]" in out
    assert "12.500 s  charged" in out
    assert "\x1b" not in out
    assert "hunter2" not in json.dumps(told("show", job.pk)[1])

    _, out, _ = run("show", job.pk, "--show-payload")
    assert 7 == out.count("hunter2")
    _, found = told("show", job.pk, "--show-payload")
    assert {"api_key": "hunter2"} == found["job"]["kwargs"]
    assert [ERROR, {**ERROR, "attempt": 2, "log": log}] == found["job"]["errors"]


def test_show_and_stats_tell_what_waits_to_run_alone(transactional_db):
    """Of a job that is due; one that waits for its time does that first."""
    job, later = (
        make_job(runs_alone=True, crashes=1, **columns)
        for columns in ({}, {"visible_at": LATER})
    )

    assert f"Job {job.pk} is ready, and waits to run alone" in run("show", job.pk)[1]
    assert "waits to run alone" not in run("show", later.pk)[1]
    assert "1 of the ready wait to run alone" in run("stats")[1]


# dead --------------------------------------------------------------------------------


def test_dead_lists_and_counts_by_reason(db):
    """With the last error in a line, without secrets."""
    for reason in ("exhausted", "rejected", "exhausted"):
        make_dead_letter(queue="mail", reason=reason, errors=[ERROR])

    status, out, _ = run("dead", "--queue", "mail")
    assert DONE == status
    assert "\n\n2 exhausted, 1 rejected\n" in out
    assert 3 == out.count("Unlucky: password=[redacted]")

    _, found = told("dead", "--reason", "rejected", "--limit", 1)
    assert {"rejected": 1} == found["reasons"]
    assert found["reasons_are_complete"]
    (letter,) = found["dead_letters"]
    assert "Unlucky: password=[redacted]" == letter["last_error"]
    assert (NOTHING, "No dead letter matches.\n") == run("dead", "--queue=x")[:2]


# retry, redrive, cancel --------------------------------------------------------------


def test_retry_by_id_makes_waiting_jobs_due_and_redrives(one_of_each):
    """Those that run or have ended are passed over, each with why; status 1."""
    status, out, err = run("retry", *one_of_each.values())

    assert NOTHING == status
    assert "3 jobs retried." in out
    assert f"Job {one_of_each['running']} was not retried: it is running." in err
    due = Job.objects.due().values_list("id", flat=True)
    expected = {one_of_each[s] for s in ("ready", "scheduled", "retrying", "dead")}
    assert expected == set(due)

    waiting = make_job(visible_at=LATER).pk
    assert (DONE, {"retried": [waiting], "passed_over": []}) == told("retry", waiting)


def test_retry_by_filter_takes_what_has_failed_alone(one_of_each):
    """A job that was scheduled for later is not dragged into now."""
    assert (DONE, "1 job retried.\n", "") == run("retry", "--all", "--yes")
    assert one_of_each["scheduled"] in Job.objects.scheduled().values_list(
        "id", flat=True
    )


def test_a_purge_deletes_dead_letters_alone(db, one_of_each):
    """Those that match, for ever; a job that is none is passed over."""
    kept = make_dead_letter(task="other")
    gone = make_dead_letter(task="old", reason="timeout")
    job = make_job()

    status, out, _ = run("purge", "--task=old", "--dry-run")
    assert (DONE, "1 job would be deleted.\n") == (status, out)
    assert (DONE, "1 job deleted.\n") == run("purge", "--task=old", "--yes")[:2]
    status, out, err = run("purge", kept.pk, job.pk, gone.pk)
    assert (NOTHING, "1 job deleted.\n") == (status, out)
    assert f"Job {job.pk} was not deleted: it is ready." in err
    assert Job.objects.filter(pk=job.pk).exists()
    assert not DeadLetter.objects.filter(pk__in=[kept.pk, gone.pk]).exists()
    assert not ArchivedJob.objects.filter(pk__in=[kept.pk, gone.pk]).exists()


def test_cancel_says_who_did_it(one_of_each):
    """Waiting jobs are archived; running ones are asked to stop."""
    status, out, err = run("cancel", "--all", "--yes")

    assert DONE == status
    assert "5 jobs cancelled." in out
    assert "Those that run were asked to stop" in err
    assert Job.objects.get(pk=one_of_each["running"]).cancel_requested_at
    (entry,) = ArchivedJob.objects.get(pk=one_of_each["ready"]).errors
    assert f"{getpass.getuser()}@" in entry["by"]
    assert entry["by"].endswith("(command line)")


def test_which_jobs_must_be_clear(db):
    """Ids, or filters, or --all: one of the three, or nothing is done."""
    make_dead_letter(queue="mail")
    words = {"retry": [], "redrive": [1, "--all"], "purge": [1, "--queue", "mail"]}

    for word, arguments in {**words, "cancel": []}.items():
        status, _, err = run(word, *arguments)
        assert USAGE == status
        assert f"Say which jobs to {'delete' if word == 'purge' else word}" in err
    assert 1 == DeadLetter.objects.count()


def test_many_jobs_are_counted_and_confirmed(db, monkeypatch):
    """Only a yes does it; where nobody can be asked it is a wrong command line."""
    for _ in range(2):
        make_dead_letter()

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for said in ("\n", "yess\n"):
        monkeypatch.setattr(sys, "stdin", Terminal(said))
        status, _, err = run("redrive", "--all")
        assert NOTHING == status
        assert "Redrive 2 jobs? [y/N]" in err
        assert "Nothing was done." in err
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    status, _, err = run("redrive", "--all")
    assert USAGE == status
    assert "give --yes" in err
    assert 2 == DeadLetter.objects.count()

    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert DONE == run("redrive", "--all")[0]
    assert 0 == DeadLetter.objects.count()


def test_an_act_that_ends_early_is_no_success(db, monkeypatch):
    """Its status says so, also where some jobs were done before."""
    letters = [make_dead_letter().pk for _ in range(2)]
    redrive = operate.redrive

    def breaks(ids, **options):
        if letters[1] in ids:
            raise ValueError("no more")
        return redrive(ids, **options)

    monkeypatch.setattr(operate, "redrive", breaks)
    monkeypatch.setattr(bulk_acts, "CHUNK_ROWS", 1)

    status, out, err = run("redrive", "--all", "--yes")

    assert (NOTHING, "1 job redriven.\n") == (status, out)
    assert "no more" in err
    assert "failed before its end" in err


# Names of queues ---------------------------------------------------------------------


def test_names_that_nothing_has_are_asked_about(db):
    """With the one that may have been meant; --force says that a queue is new."""
    redrive = ("redrive", "--all", "--yes", "--to")
    enqueue = ("enqueue", "tests.app.tasks.noop", "--queue")
    for arguments in (("pause",), redrive, enqueue):
        status, _, err = run(*arguments, "mial")
        assert 1 == status
        assert "No queue is called 'mial'. Did you mean 'mail'?" in err
        assert "--force" in err
    for arguments in (("pause", "--task"), ("enqueue",)):
        status, _, err = run(*arguments, "tests.app.tasks.noob")
        assert 1 == status
        assert "No task is declared as 'tests.app.tasks.noob'. Did you mean" in err
    assert not Queue.objects.exists()
    assert not Lane.objects.exists()
    assert not Job.objects.exists()

    assert DONE == run("pause", "mial", "--force")[0]
    make_job(queue="mail")
    for arguments in (("stats", "--queue"), ("jobs", "--queue"), ("resume",)):
        status, _, err = run(*arguments, "miall")
        assert NOTHING == status
        assert "Did you mean 'mial" in err


# pause and resume --------------------------------------------------------------------


def test_pause_and_resume(db):
    """A second pause leaves who and why as they are, and has status 1."""
    status, out, _ = run("pause", "mail", "--reason", "the provider is down")
    assert DONE == status
    assert "Queue mail is paused" in out
    queue = Queue.objects.get(name="mail")
    assert "the provider is down" == queue.pause_reason
    assert queue.paused_by.endswith("(command line)")

    status, out, _ = run("pause", "mail", "--reason", "mine")
    assert NOTHING == status
    assert "the provider is down; that stays" in out

    assert (DONE, {"queue": "mail", "resumed": True}) == told("resume", "mail")
    assert Queue.objects.get(name="mail").paused_at is None
    status, _, err = run("resume", "mial")
    assert NOTHING == status
    assert "Did you mean 'mail'?" in err


# limit -------------------------------------------------------------------------------


def test_a_queue_gets_a_limit_and_loses_it(db, settings):
    """What is not said stays as it is; default is what the settings say."""
    make_leased_job("w", queue="mail")
    assert (DONE, "Queue mail takes 5 at a time.\n", "") == run(
        "limit", "mail", "--concurrency", 5
    )
    changed = {"queue": "mail", "concurrency": 5, "changed": False}
    assert (NOTHING, changed) == told("limit", "mail", "--concurrency", 5)
    _, out, _ = run("limit", "mail", "--rate", "100/m", "--burst", 10)
    assert "Queue mail takes 100/min, 10 at once.\n" == out
    assert "1 of 5 run, 100/min" in run("stats")[1]
    (stats,) = told("stats")[1]["queues"]
    assert (5, 0.6, 10) == tuple(
        stats[key] for key in ("concurrency", "rate_spacing", "rate_burst")
    )

    settings.PGQUEUE = {"QUEUES": {"mail": {"concurrency": 20}}}
    default = ("--concurrency", "default", "--rate", "default")
    assert DONE == run("limit", "mail", *default)[0]
    assert re.search(r"1 of 20 run$", run("stats")[1], re.MULTILINE)


# The command line itself -------------------------------------------------------------


WRONG = (
    ([], "SUBCOMMAND"),
    (["sorting"], "invalid choice"),
    (["show", "abc"], "'abc' is no id of a job"),
    (["show", "0"], "'0' is no id"),
    (["show", "9" * 5_000], "is no id"),
    (["show", 2**63], "is no id"),
    (["show", "¹"], "is no id"),
    (["jobs", "--limit", "0"], "from 1 to 10,000"),
    (["jobs", "--state", "redy"], "Did you mean 'ready'?"),
    (["cancel", "--state", "dead", "--yes"], "'dead' is no state of a live job"),
    (["dead", "--reason", "timeot"], "Did you mean 'timeout'?"),
    (["jobs", "--queue", "a b"], "a queue name has 1 to 63 characters"),
    (["jobs", "--task", "\ud800"], "no text in UTF-8"),
    (["redrive", "1", "--to", "a\x1b"], "a queue name"),
    (["doctor", "extra"], "extra"),
    (["pause"], "required"),
    (["pause", "mail", "--task", "tests.app.tasks.noop"], "not allowed with"),
    (["redrive", "--since", "soon"], "or how long ago, such as 90m"),
    (["redrive", "--age=-1h"], "-1h"),
    (["redrive", "--per-second", "0"], "'0' is not a whole number from 1 to 10,000"),
    (["limit", "mail"], "Say --concurrency, --rate or both."),
    (["limit", "mail", "--concurrency", "0"], "'0' is not default, nor a whole"),
    (["limit", "mail", "--rate", "often"], "it must be text 'N/period'"),
    (["limit", "mail", "--burst", "5"], "--burst needs a --rate beside it."),
    (["lanes", "pause", ""], "lane is empty"),
    (["lanes", "pause", "a", "--until", "soon"], "'soon' is no time"),
    (["lanes", "capacity", "a", "100001"], "to 100,000"),
    (["lanes", "weight", "a", "0"], "'0' is not default, nor a whole number"),
    (["schedules", "next", "x", "--count", "0"], "from 1 to 10,000"),
    (["schedules", "sing", "x"], "invalid choice"),
    (["send", "thumbs", "{"], "is no JSON"),
    (["send", "thumbs", "1", "--delay", "soon"], "the delay is 'soon'"),
    (["send", "thumbs", "1", "2", "--key", "a"], "--key is of one PAYLOAD"),
    (["receive", "thumbs", "-n", "1001"], "from 1 to 1,000"),
    (["ack", "thumbs", "4711"], "is no receipt"),
    (["publish", "orders.created", "{"], "is no JSON"),
    (["peek", "orders", "--from", "sometime"], "is no place in a log"),
    (["lag", "--max", "x"], "is not a whole number from 0"),
    (["seek", "orders/stats"], "--to"),
    (["groups", "pause", "orders"], "is no group"),
    (["topics", "orders.paid"], "cannot be called"),
    (["peek", "orders", "--partition", "32767"], "not a partition, a whole number"),
    (["flows", "--state", "dead"], "is no state of a workflow; there are running"),
    (["flows", "7", "--state", "failed"], "is no state of a step; there are waiting"),
    (["flows", "cancle", "7"], "Say flows, flows ID, or one of: cancel ID"),
    (["flows", "cancle"], "Did you mean 'cancel'?"),
    (["flows", "cancel", "x"], "is no id of a workflow"),
)


def test_a_wrong_word_is_told_with_what_there_is(django_assert_num_queries, db):
    """Status 2, before the database is asked."""
    with django_assert_num_queries(0):
        for arguments, words in WRONG:
            status, out, err = run(*arguments)
            assert (USAGE, "") == (status, out), arguments
            assert words in err, arguments


# Of a process: Django takes a second to start.
IN_TURN = """
import sys
from django.core.management import execute_from_command_line

for word in sys.argv[1:]:
    try:
        execute_from_command_line(["manage.py", "pgqueue", word])
    except SystemExit as end:
        print(word, end.code)
"""


def test_a_database_that_is_away_is_status_3(db):
    """One line, no traceback."""
    nobody = {"databases": {"default": {"HOST": "127.0.0.1", "PORT": 1}}}
    ended = process("-c", IN_TURN, "stats", "doctor", **process_environment(**nobody))

    assert f"stats {UNUSABLE}\ndoctor {UNUSABLE}\n" == ended.stdout
    lines = ended.stderr.splitlines()
    assert 2 == len(lines)
    assert all("Database 'default' cannot be used" in line for line in lines)


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_error(transactional_db):
    """`pgqueue jobs | head -2` says nothing about pipes, whatever it can encode."""
    make_jobs(600, task="t" * 200)  # More than a pipe holds, which is 64 KiB.
    make_job(task="世界")
    ended = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m django pgqueue jobs --limit 601 | head -2"],
        cwd=REPOSITORY,
        env={
            **os.environ,
            **process_environment(),
            "LANG": "C",
            "PYTHONUTF8": "0",
            "PYTHONIOENCODING": "ascii",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60 * patience(),
    )

    assert "" == ended.stderr
    assert 2 == len(ended.stdout.splitlines())
    assert r"\u4e16\u754c" in ended.stdout
