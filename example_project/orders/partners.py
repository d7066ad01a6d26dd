"""
Partners: the bank and the parcel service, as one HTTP API.

Each request says its key, so that one that comes again, since its answer was lost, is
answered as the first one was, and changes nothing.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from django.conf import settings

from django_pgqueue import Reject


def call(method: str, path: str, *, key: str = "", **body: Any) -> dict[str, Any]:
    """
    Send a request and return the answer.

    Args:
        method: POST makes something, DELETE takes it back.
        path: From the root of the API on.
        key: The same each time that the same thing is meant.
        body: Sent as JSON.

    Raises:
        Reject: The answer is no, and will be no however often we ask: 4xx.
        OSError: There is no answer, or it is 5xx. It may have been done or not.
    """
    request = urllib.request.Request(  # noqa: S310 - the scheme is that of a setting.
        f"{settings.PARTNERS_URL}{path}",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": key},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=settings.PARTNERS_TIMEOUT) as got:  # noqa: S310
            answer: dict[str, Any] = json.load(got)
            return answer
    except urllib.error.HTTPError as error:
        with error:
            if error.code < 500:
                why = json.load(error)["error"]
                raise Reject(f"{error.code} {why}") from error
        raise
