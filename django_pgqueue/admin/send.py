"""What people can do with pull queues and topics: send, and publish, a message."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.acts import Act, Work, on_each
from django_pgqueue.admin.edit import JsonField
from django_pgqueue.exceptions import (
    InvalidArgument,
    InvalidOption,
    PayloadTooLarge,
    QueueFull,
    TopicError,
)
from django_pgqueue.options.durations import as_timedelta

PERMISSION = "send"

# What is wrong with a message, in words for whoever wrote it.
REFUSED = (InvalidArgument, InvalidOption, PayloadTooLarge, QueueFull, TopicError)

DELAY_CHARACTERS_MAX = 30


class PayloadForm(forms.Form):
    """What a message says."""

    payload = JsonField(
        label=_("Payload"),
        help_text=_('A JSON value, such as {"path": "a.jpg"}.'),
        widget=forms.Textarea({"spellcheck": "false", "rows": "6"}),
    )


class MessageForm(PayloadForm):
    """One message for a pull queue."""

    group = forms.CharField(
        label=_("Group"),
        required=False,
        help_text=_("Received one at a time and in order with its others."),
    )
    delay = forms.CharField(
        label=_("Delay"),
        max_length=DELAY_CHARACTERS_MAX,
        required=False,
        help_text=_("Nobody receives it for so long, such as 90s or 2h."),
    )

    def clean_delay(self) -> Any:
        """Return the length of time; nothing is none."""
        text = self.cleaned_data["delay"]
        try:
            return as_timedelta(text, name="delay") if text else None
        except ValueError as error:
            raise ValidationError("%(error)s", params={"error": error}) from None


class PublicationForm(PayloadForm):
    """One message for a topic."""

    rest = forms.CharField(
        label=_("Name, after that of the topic"),
        required=False,
        help_text=_("Such as created, of orders.created; none: the topic's."),
    )
    key = forms.CharField(
        label=_("Key"),
        required=False,
        help_text=_("Messages of one key keep their order."),
    )


def _send(row: Any, work: Work) -> list[int]:
    # Here: it is seldom needed, and django.setup() loads this page.
    from django_pgqueue.pull.queue import known_queue

    queue, data = known_queue(row.name), work.data
    if queue is None:
        problem = _("%(queue)s is a queue of tasks: nobody would receive it there.")
        raise InvalidOption(problem % {"queue": row.name})
    group = data["group"] or None
    return [queue.send(data["payload"], group=group, delay=data["delay"])]


def _publish(row: Any, work: Work) -> list[int]:
    from django_pgqueue.topics.publish import publish

    data = work.data
    name = f"{row.name}.{data['rest']}" if data["rest"] else row.name
    return [publish(name, data["payload"], key=data["key"] or None)]


SEND = Act(
    name="send",
    permissions=(PERMISSION,),
    label=_("Send a message"),
    help=_("Its receivers get it as any other."),
    run=on_each(_send, *REFUSED),
    done=_("%(count)d sent: message %(names)s."),
    entry=_("Sent message %(names)s."),
    form=MessageForm,
    offered=lambda row: row.kind == "pull",
    order="name",
    warning=_(
        "Whoever receives from the queue gets it, and does what the payload says."
    ),
)

PUBLISH = Act(
    name="publish",
    permissions=(PERMISSION,),
    label=_("Publish a message"),
    help=_("Those who listen to the topic get it as any other."),
    run=on_each(_publish, *REFUSED),
    done=_("%(count)d published: message %(names)s."),
    entry=_("Published message %(names)s."),
    form=PublicationForm,
    order="name",
    warning=_(
        "Subscribers and groups get it, and do what the payload says. It stays in the "
        "log for as long as its other messages."
    ),
)
