"""`manage.py pgqueue_worker`: what is refused before anything starts."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_pgqueue.models import ArchivedJob
from tests.app import crash_tasks
from tests.harness.worker_process import enqueue, start_worker, the_ledger

__all__ = ["start_worker", "the_ledger"]


@pytest.mark.parametrize(
    "arguments,words",
    [
        (["--queues", ""], "'' is no entry: write NAME, NAME=WEIGHT"),
        (["--queues", "a,,b"], "'' is no entry"),
        (["--queues", "q" * 64], "is no entry"),
        (["--queues", "a=0"], "a weight is a whole number from 1 to 1,000, not 0"),
        (["--queues=a:1", "--queues=a:2"], "'a' is named twice"),
        (["--queues=a=2", "--queue-order=strict"], "no meaning in strict order"),
        (["--queue-order=random"], "invalid choice: 'random'"),
        (["--processes", "0"], "from 1 to 256"),
        (["--processes", "257"], "from 1 to 256"),
        (["--threads", "1.5"], "from 1 to 1,000"),
        (["--threads", "-1"], "from 1 to 1,000"),
        (["--threads", "9" * 5_000], "--threads"),
        (["--async-slots", "0"], "from 1 to 10,000"),
        (["--grace", "-1"], "--grace"),
        (["--grace", "nan"], "grace is 'nan', which is no duration"),
        (["--grace", "9" * 400], "the longest is"),
        (["--health-port", "65536"], "from 0 to 65,535"),
        (["--health-port", "http"], "from 0 to 65,535"),
        (["--lease", "1"], "--lease"),
    ],
)
def test_a_wrong_command_line_names_the_option(arguments, words):
    """argparse's own error, which is exit status 2 for a process."""
    with pytest.raises(CommandError, match=r"^Error: ") as error:
        call_command("pgqueue_worker", *arguments)

    assert words in str(error.value)


@pytest.mark.parametrize(
    "pgqueue,words",
    [
        ({"DATABASE": "defualt"}, "Did you mean 'default'?"),
        ({"LISTEN_DATABASE": "direct"}, "PGQUEUE['LISTEN_DATABASE'] is 'direct'"),
        ({"LISTEN": "false"}, "PGQUEUE['LISTEN'] must be True or False"),
        ("x", "PGQUEUE must be a dict"),
    ],
)
def test_a_wrong_setting_is_one_line(settings, pgqueue, words):
    """Exit status 1; without a traceback."""
    settings.PGQUEUE = pgqueue

    with pytest.raises(CommandError) as error:
        call_command("pgqueue_worker")

    assert 1 == error.value.returncode
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_queue_that_looks_like_a_typo_is_asked_about(start_worker):
    """It would wait for ever without a word; --force says that it is meant."""
    with pytest.raises(CommandError, match=r"called 'mial'\. Did you mean 'mail'\?"):
        call_command("pgqueue_worker", "--drain", "--queues=default,mial")

    forced = start_worker("--drain", "--queues=mial", "--force", wait=False)
    unlike = start_worker("--drain", "--queues=zebra,mail-2", wait=False)

    assert 0 == forced.wait(60)
    assert 0 == unlike.wait(60)


@pytest.mark.slow
def test_it_runs_in_a_bare_environment(start_worker):
    """Without assertions, in the C locale, with no time zone and a fixed hash seed."""
    jobs = enqueue(crash_tasks.record, 3, note="世界")
    worker = start_worker(
        "--drain",
        wait=False,
        environment={
            "LANG": "C",
            "LC_ALL": "C",
            "TZ": "",
            "PYTHONOPTIMIZE": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONUTF8": "0",
            "PYTHONIOENCODING": "ascii",
        },
    )

    assert 0 == worker.wait(60)
    assert set(jobs) == set(ArchivedJob.objects.values_list("id", flat=True))
