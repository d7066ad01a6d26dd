"""A session that breaks costs the test in which it did, and no later one."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from pyspark import SparkContext

from tests.spark.one_session import ONE

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_jvm_that_died_is_replaced(spark, start_spark):
    """When the next test asks for the session."""
    process = SparkContext._gateway.proc
    process.kill()
    process.wait(60)

    assert 3 == ONE.get(start_spark).range(3).count()


def test_a_call_that_is_cut_off_answers_no_later_one(spark, start_spark, request):
    """As pytest-timeout cuts it off: by a signal, with its answer still to come."""

    def cut_off(*_):
        pytest.fail("Timeout (>0.5s) from pytest-timeout.")

    before = signal.signal(signal.SIGUSR2, cut_off)
    timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGUSR2])
    timer.start()
    with pytest.raises(pytest.fail.Exception, match="pytest-timeout") as raised:
        spark._jvm.java.lang.Thread.sleep(60_000)
    signal.signal(signal.SIGUSR2, before)
    call = pytest.CallInfo(None, raised, 0.0, 0.5, 0.5, "call", _ispytest=True)
    hook = request.node.ihook.pytest_exception_interact
    hook(node=request.node, call=call, report=None)

    assert 3 == ONE.get(start_spark).range(3).count()
