"""
What public secret scanners look for, and what a queue's payloads and errors look like.

No value here is a real one. What has the shape of a service's key is put together, so
that no scanner takes this file for a leak.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any

LETTERS = string.ascii_lowercase + string.digits + string.ascii_uppercase
SECRET = "hunter2"  # What no page may show.


@dataclass(frozen=True)
class Case:
    """A value among the arguments, or a text; and what must not be seen of it."""

    name: str
    value: Any
    secret: str = SECRET

    def __str__(self) -> str:
        return self.name


def named(name: str) -> Case:
    """Return the case of a key with that name."""
    return Case(f"key {name}", {name: SECRET, "note": "kept"})


NAMES = [
    *("password", "passwd", "pwd", "passphrase", "PGPASSWORD", "db-password"),
    *("secret", "client_secret", "AWS_SECRET_ACCESS_KEY", "accessKey", "access_key"),
    *("token", "refreshToken", "api_key", "apikey", "X-Api-Key", "private_key"),
    *("auth", "X-Auth", "basicAuth", "authorization", "jwt", "JWT", "id_jwt"),
    *("otp", "otp_code", "smsOtp", "session", "session_id", "sessionid", "sessionKey"),
    *("cookie", "Set-Cookie", "credentials", "signature"),
]

HARMLESS = [
    *("author", "authors", "authority", "hotpot", "laptop", "obsession", "key"),
    *("sessions", "user", "order_id", "monkey", "pass", "path"),
]

BESIDE = [
    Case("name and value", {"name": "password", "value": SECRET}),
    Case("value before name", [{"value": SECRET, "header": "X-Api-Key"}]),
    Case("Name and Value of a container", {"Name": "DB_PASSWORD", "Value": SECRET}),
    Case("key and value", {"env": [{"key": "token", "value": {"raw": SECRET}}]}),
    Case("a header's pair", {"headers": [["Authorization", f"Bearer {SECRET}"]]}),
    Case("a flag's value", ["curl", "--password", SECRET, "https://example.org"]),
    Case("a flag with =", ["curl", f"--password={SECRET}"]),
    Case("a line of a header", {"lines": [f"Authorization: Basic {SECRET}"]}),
]

# In messages and tracebacks, and in strings among the arguments.
TEXTS = [
    f"postgres://ada:{SECRET}@db/shop",
    f"amqp://ada:p@{SECRET}@mq:5672/",
    f"redis://:{SECRET}@cache:6379/0",
    f"GET https://h/p?token={SECRET}&n=1",
    f"GET /reset?user=1&access_key={SECRET}",
    f"host=db user=ada password={SECRET} dbname=shop",
    f"Server=db;Uid=ada;Pwd={SECRET};Database=shop",
    f"password=ab){SECRET}",
    f"f(password=a@b){SECRET})",
    f"UPDATE u SET password = 'it''s{SECRET}' WHERE id = 1",
    f'password="a""{SECRET}"',
    f"password='it\\'s {SECRET}'",
    f"mysqldump --password {SECRET} shop",
    f"login -passphrase '{SECRET}'",
    f"call(('Authorization', 'Bearer {SECRET}'))",
    f"[{{'name': 'password', 'value': '{SECRET}'}}]",
    f'{{"key": "jwt", "value": "{SECRET}"}}',
    f"DETAIL:  Key (api_token)=({SECRET}) already exists.",
    f"DETAIL:  Key (tenant_id, api_token)=(1, a) b {SECRET}) already exists.",
    f"DETAIL:  Key (lower(session_token))=({SECRET}) is not present in table x.",
    f"DETAIL:  Failing row contains (1, ada, {SECRET}, null).",
    f"X-Auth: {SECRET}",
    f"otp={SECRET}",
    f"Cookie: sessionid={SECRET}; csrftoken=x",
    f"AWS_SECRET_ACCESS_KEY={SECRET}",
]


def shape(name: str, *parts: str) -> Case:
    """Return the case of a text that only its look gives away."""
    secret = "".join(parts)
    return Case(f"shape of {name}", f"got {secret} from there", secret)


SHAPES = [
    shape("AWS", "AKIA", "IOSFODNN7EXAMPLE"),
    shape("GitHub", "ghp", "_", LETTERS[:36]),
    shape("GitHub, fine-grained", "github", "_pat_", LETTERS[:30]),
    shape("GitLab", "glpat", "-", LETTERS[:20]),
    shape("Slack", "xoxb", "-", "123456789012-", LETTERS[:12]),
    shape("Slack's hooks", "hooks.slack", ".com/services/", "T0/B0/", LETTERS[:24]),
    shape("Stripe", "sk", "_live_", LETTERS[:24]),
    shape("a restricted key of Stripe", "rk", "_live_", LETTERS[:24]),
    shape("Anthropic", "sk", "-ant-", LETTERS[:40]),
    shape("OpenAI", "sk", "-proj-", LETTERS[:40]),
    shape("Google", "AIza", LETTERS[:35]),
    shape("SendGrid", "SG.", LETTERS[:22], ".", LETTERS[:43]),
    shape("npm", "npm", "_", LETTERS[:36]),
    shape("PyPI", "pypi", "-", LETTERS),
    shape("a JSON Web Token", "eyJ", LETTERS[:20], ".eyJ", LETTERS[:30], ".", "sig"),
    Case(
        "a private key",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
    ),
    Case(
        "a private key without its end",
        "-----BEGIN OPENSSH " + f"PRIVATE KEY-----\nabc\n{SECRET}",
    ),
]

CASES = [
    *map(named, NAMES),
    *BESIDE,
    *(Case(text, text) for text in TEXTS),
    *SHAPES,
]
