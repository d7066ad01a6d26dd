"""The files of mails, each kept once, and the jobs whose mails have them."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _


class MailFile(models.Model):
    """
    A row exists from the first mail with these bytes until some days after no job,
    dead letter or archived job has one.
    """

    # SHA-256, in hexadecimal digits.
    digest = models.CharField(_("digest"), max_length=64, primary_key=True)
    data = models.BinaryField(_("data"))
    # When the leader looks whether a mail still has it.
    look_at = models.DateTimeField(_("look at"))

    class Meta:
        db_table = "pgqueue_mail_file"
        verbose_name = _("file of mails")
        verbose_name_plural = _("files of mails")
        default_permissions = ()
        indexes: ClassVar = [
            models.Index(fields=["look_at"], name="pgqueue_mail_file_look")
        ]

    def __str__(self) -> str:
        return self.digest


class MailFileUse(models.Model):
    """
    A row exists from the enqueue of a mail with a file until its job is in no table.

    A job keeps its id wherever its row goes, so that its uses need not follow it.
    """

    pk = models.CompositePrimaryKey("digest", "job_id")
    digest = models.CharField(_("digest"), max_length=64)
    job_id = models.BigIntegerField(_("job"))
    # When the leader looks whether the job is still there.
    look_at = models.DateTimeField(_("look at"))

    class Meta:
        db_table = "pgqueue_mail_file_use"
        verbose_name = _("use of a file of mails")
        verbose_name_plural = _("uses of files of mails")
        default_permissions = ()
        indexes: ClassVar = [
            models.Index(fields=["look_at"], name="pgqueue_mail_file_use_look")
        ]

    def __str__(self) -> str:
        return f"{self.digest}: {self.job_id}"
