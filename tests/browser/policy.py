"""A middleware of the strict kind: nothing but files of the site itself."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

POLICY = "default-src 'self'; frame-ancestors 'none'; form-action 'self'"


def content_security_policy(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """
    Send the policy with every page.

    Browsers ask for an icon by themselves. The server answers: a route in the browser
    would have it ask for every file anew with each page.
    """

    def answer(request: HttpRequest) -> HttpResponse:
        if request.path == "/favicon.ico":
            return HttpResponse(status=204)
        response = get_response(request)
        response["Content-Security-Policy"] = POLICY
        return response

    return answer
