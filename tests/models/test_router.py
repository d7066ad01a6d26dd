"""QueueRouter: the queue tables live where PGQUEUE['DATABASE'] says, and only there."""

from __future__ import annotations

import pytest
from django.db import router

from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Queue, Worker

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
