"""
Names: whether the value under a name is secret, by patterns.

A pattern is a regular expression that is searched in every name, whatever the case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

PLACEHOLDER = "[redacted]"

# Keys of arguments and headers whose values are never shown: a pattern matches a key
# that it occurs in, whatever the case. Words that occur in harmless ones (author,
# hotpot, sessions_count) stand alone, or between underscores.
REDACT_DEFAULT = (
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "api_key",
    "apikey",
    "access_key",
    "accesskey",
    "authorization",
    "credential",
    "cookie",
    "private_key",
    "privatekey",
    "signature",
    "jwt",
    "sessionid",
    "(^|_)auth(_|$)",
    "(^|_)otp(_|$)",
    "(^|_)session(_|$)",
)

# The value of a longer key is replaced without a search.
KEY_CHARACTERS_MAX = 1_000

# A text that names another value: of a pair, of a flag, of {"name": …, "value": …}.
NAME = re.compile(r"-{0,2}[\w.-]{1,100}")

# Keys of objects that name the value of their key VALUE.
NAMING = frozenset({"name", "key", "field", "header"})
VALUE = "value"

# Two words in one: accessToken, and HTTP's X-Api-Key, are found as access_token and
# x_api_key too.
WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[\s.-]+")


# Well-known secrets that are recognised by how they look. Each service documents the
# beginning of its keys for this purpose; the expressions suit Python and RE2.
KEY_BLOCK = "-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----"

SHAPES = (
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",  # AWS
    r"\bgh[pousr]_[A-Za-z0-9]{36}",  # GitHub
    r"\bgithub_pat_\w{22}",
    r"\bglpat-[\w-]{20}",  # GitLab
    r"\bxox[abeoprs]-[\w-]{10}",  # Slack
    r"hooks\.slack\.com/services/\w+/\w+/",
    r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16}",  # Stripe
    r"\bsk-(?:ant|proj)-[\w-]{20}",  # Anthropic, OpenAI
    r"\bAIza[\w-]{35}",  # Google
    r"\bSG\.[\w-]{22}\.[\w-]{20}",  # SendGrid
    r"\bnpm_[A-Za-z0-9]{36}",
    r"\bpypi-[\w-]{50}",
    r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.",  # JSON Web Tokens
)

# All of what begins so; a private key to its end, or that of the text.
SHAPE = re.compile(
    rf"(?:{'|'.join(SHAPES)})[\w.-]*|{KEY_BLOCK}.*?(?:-----END [A-Z ]*-----|\Z)",
    re.DOTALL,
)

# What RE2 looks for in JSON, where \n may stand before it: finds more than SHAPE.
SHAPE_BEGINS = "|".join((*SHAPES, KEY_BLOCK)).replace(r"\b", "")


class Names:
    """Which names are secret; each is looked at once."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = _compiled(tuple(patterns))
        self._known: dict[str, bool] = {}

    def hides(self, name: str | None) -> bool:
        """Whether a value under *name* is replaced."""
        if name is None or not self.patterns:
            return False
        if len(name) > KEY_CHARACTERS_MAX:
            return True
        if name not in self._known:
            ways = {name, WORD_START.sub("_", name)}
            self._known[name] = any(
                pattern.search(way) for pattern in self.patterns for way in ways
            )
        return self._known[name]

    def names_secret(self, text: object) -> bool:
        """Whether *text*, itself a value, is the name of a secret that is beside it."""
        return (
            isinstance(text, str)
            and NAME.fullmatch(text) is not None
            and self.hides(text)
        )

    def is_secret_flag(self, text: object) -> bool:
        """Whether *text* is a flag, such as --password, whose value comes next."""
        return isinstance(text, str) and text[:1] == "-" and self.names_secret(text)


@lru_cache(maxsize=32)
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    # Words are one pattern together; groups and flags of others would not mix.
    words = [text for text in patterns if text.replace("_", "").isalnum()]
    others = [text for text in patterns if text not in words]
    return tuple(map(_as_pattern, [*filter(None, ["|".join(words)]), *others]))


def _as_pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error:  # The settings refuse it; a caller's own is taken literally.
        return re.compile(re.escape(text), re.IGNORECASE)
