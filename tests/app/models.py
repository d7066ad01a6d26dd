"""A user's models: one remembers a job, one has a field of every kind."""

from django.db import models

from django_pgqueue.models import JobField


class Order(models.Model):
    """An order whose receipt is sent by a job."""

    name = models.CharField(max_length=50, default="")
    receipt = JobField(null=True)

    def __str__(self) -> str:
        return self.name


class EveryField(models.Model):
    """A value of each type that a job may carry, and of some that it may not."""

    big = models.BigIntegerField(null=True)
    binary = models.BinaryField(null=True)
    boolean = models.BooleanField(null=True)
    char = models.CharField(max_length=100, null=True)
    date = models.DateField(null=True)
    datetime = models.DateTimeField(null=True)
    decimal = models.DecimalField(max_digits=30, decimal_places=5, null=True)
    duration = models.DurationField(null=True)
    email = models.EmailField(null=True)
    float = models.FloatField(null=True)
    integer = models.IntegerField(null=True)
    ip = models.GenericIPAddressField(null=True)
    order = models.ForeignKey(Order, models.CASCADE, null=True)
    small = models.PositiveSmallIntegerField(null=True)
    text = models.TextField(null=True)
    time = models.TimeField(null=True)
    uuid = models.UUIDField(null=True)
    # What the database cannot write as delay() would.
    file = models.FileField(null=True)
    json = models.JSONField(null=True)

    def __str__(self) -> str:
        return str(self.pk)


class Effect(models.Model):
    """What one run of a job wrote. Not unique: a repeat is to be seen."""

    job = models.BigIntegerField(db_index=True)
    attempt = models.IntegerField(default=0)
    note = models.CharField(max_length=100, default="")

    def __str__(self) -> str:
        return f"{self.job}: {self.note}"
