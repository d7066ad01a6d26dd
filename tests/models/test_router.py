"""QueueRouter: the queue tables live where PGQUEUE['DATABASE'] says, and only there."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import router

from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Queue, Worker
from tests.app.models import Order

QUEUE_MODELS = [Job, ArchivedJob, DeadLetter, Queue, Worker]


@pytest.fixture
def queue_on_second_database(settings):
    """A project whose jobs are apart from its data."""
    settings.DATABASE_ROUTERS = ["django_pgqueue.models.router.QueueRouter"]
    settings.PGQUEUE = {"DATABASE": "queue"}


@pytest.mark.usefixtures("queue_on_second_database")
@pytest.mark.parametrize("model", QUEUE_MODELS)
def test_queue_models_are_read_and_written_on_their_database(model):
    """The ORM goes where the workers go."""
    assert ("queue", "queue") == (
        router.db_for_read(model),
        router.db_for_write(model),
    )


@pytest.mark.usefixtures("queue_on_second_database")
@pytest.mark.parametrize("model", QUEUE_MODELS)
def test_queue_tables_are_made_on_their_database_alone(model):
    """A project's other databases get no empty queue tables."""
    assert router.allow_migrate_model("queue", model)
    assert not router.allow_migrate_model("default", model)


@pytest.mark.usefixtures("queue_on_second_database")
def test_functions_and_triggers_follow_their_tables():
    """A RunSQL has no model; its app's label decides."""
    assert router.allow_migrate("queue", "pgqueue")
    assert not router.allow_migrate("default", "pgqueue")


@pytest.mark.usefixtures("queue_on_second_database")
@pytest.mark.parametrize("model", [User, Order])
def test_other_models_are_none_of_its_business(model):
    """It has no opinion on them, so Django's default or another router decides."""
    assert "default" == router.db_for_read(model)
    assert "default" == router.db_for_write(model)
    assert router.allow_migrate_model("default", model)
    assert router.allow_migrate_model("queue", model)


def test_without_a_setting_the_queue_is_on_default(settings):
    """One database needs no routers, and the router changes nothing then."""
    settings.DATABASE_ROUTERS = ["django_pgqueue.models.router.QueueRouter"]

    assert "default" == router.db_for_write(Job)
    assert router.allow_migrate_model("default", Job)
