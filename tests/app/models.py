"""A user's model that remembers a job."""

from django.db import models

from django_pgqueue.models import JobField


class Order(models.Model):
    """An order whose receipt is sent by a job."""

    name = models.CharField(max_length=50, default="")
    receipt = JobField(null=True)

    def __str__(self) -> str:
        return self.name
