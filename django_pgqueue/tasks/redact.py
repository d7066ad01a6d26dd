"""
Redact: what a job carries, without the values that nobody should read.

PGQUEUE['REDACT'] lists regular expressions for names: keys of an object at any depth,
and parameters of the job's task. The whole value under such a name is replaced. This is
for people's eyes, in the admin and on the command line; what is stored stays as it is.

Nothing here raises, and where a value is too deep or too large to be looked through,
what was not looked at is not shown.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from django_pgqueue.conf import Settings
from django_pgqueue.tasks.registry import find_sender

PLACEHOLDER = "[redacted]"

# Deeper values are replaced whole: no task takes them (tasks/payload.py).
DEPTH_MAX = 100

# Items of lists and objects that are looked at, half a second at most; the rest is
# one placeholder.
VALUES_MAX = 100_000

# The value of a longer key is replaced without a search.
KEY_CHARACTERS_MAX = 1_000

# The key under which stands what was left out of an object.
REST = "…"

# Two words in one: accessToken, and HTTP's X-Api-Key, are found as access_token and
# x_api_key too.
WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[\s.-]+")

# A name and what separates it from its value, in a message or a line of a traceback:
# key=…, 'key': …, \"key\": …, Key: …. Possessive, so that a text of any shape is gone
# through once.
NAMED = re.compile(
    r"""(?<![\w.-])(?P<name>[\w.-]++)"""
    r"""(?P<quote>\\*["'])?[ \t]{0,8}(?P<sign>=(?!=)|:(?!:))[ \t]{0,8}"""
)
# Classes of exceptions are no names of values: "InvalidTokenError: it has expired".
EXCEPTION = re.compile(
    r"(?:^|\.)(?:Invalid|Missing|Expired)\w*$|(?:Error|Exception|Warning)$"
)

# How a value begins and ends: in quotes, in brackets, or without either.
OPENING = re.compile(r"""[bBfFrRuU]{0,2}(?P<escapes>\\*)(?P<quote>\'\'\'|"{3}|'|")""")
BRACKETS = {"{": "}", "[": "]", "(": ")", "<": ">"}
IN_BRACKETS = re.compile(r"""\\.|["'{}\[\]()<>]""", re.DOTALL)
BARE = re.compile(r"""[^\s,;&)\]}]*""")
SCHEMES = frozenset({"basic", "bearer", "digest", "negotiate", "token"})

# Looking for the ends of values may take this many times the length of the text; then
# all the rest of it is replaced.
LOOKS_MAX = 2

# The password of a URL, such as a DSN in the message of a driver.
USER_INFO = re.compile(r"(?<=://)([^\s:/@'\"]*+):[^\s/@'\"]++(?=@)")


def redact(value: Any, patterns: Iterable[str]) -> Any:
    """
    Return a JSON value with everything under a matching key replaced.

    Args:
        value: Lists, objects and plain values, as json.loads() returns them; headers
            too. It is not changed.
        patterns: Regular expressions; each is searched in every key, whatever the case.
    """
    return _Walk(patterns).value(value, 0)


def redact_job(
    args: Any, kwargs: Any, task_name: str, settings: Settings
) -> tuple[Any, Any]:
    """
    Return the arguments of a job with its secrets replaced.

    Positional arguments are known by the parameters of the declared task. Those of a
    task that is not declared here have no names, so only keys inside of them count.

    Args:
        args: The stored args: a list, or whatever SQL has put there.
        kwargs: The stored kwargs: an object, or whatever SQL has put there.
        task_name: The task that the job names.
        settings: Where REDACT stands.
    """
    walk = _Walk(settings.redact)
    if not walk.patterns or not isinstance(args, list):
        return walk.value(args, 0), walk.value(kwargs, 0)
    names, rest = _parameters(task_name)
    shown = [
        PLACEHOLDER
        if walk.hides(names[place] if place < len(names) else rest)
        else walk.value(value, 1)
        for place, value in enumerate(args[:VALUES_MAX])
    ]
    return shown, walk.value(kwargs, 0)


def redact_errors(errors: Any, patterns: Iterable[str]) -> Any:
    """Return a job's errors with the secrets in messages and tracebacks replaced."""
    asked = tuple(patterns)
    if not isinstance(errors, list):
        return redact(errors, asked)
    return [
        {
            key: redact_text(value, asked) if isinstance(value, str) else value
            for key, value in entry.items()
        }
        if isinstance(entry, dict)
        else entry
        for entry in redact(errors, asked)
    ]


def redact_text(text: str, patterns: Iterable[str]) -> str:
    """
    Return a message or a traceback with the values of matching names replaced.

    Found are key=value, 'key': 'value' (with any quotes, escaped or not), Key: value
    (up to the end of its line, as in an HTTP header), and the password of a URL.
    """
    walk = _Walk(patterns)
    if not walk.patterns:
        return text
    ends = _Ends(text)
    parts: list[str] = []
    done = 0
    for found in NAMED.finditer(text):
        if found.start() >= done and _is_hidden(walk, found):
            parts += text[done : found.end()], PLACEHOLDER
            done = ends.of_value(found)
    parts.append(text[done:])
    return USER_INFO.sub(rf"\1:{PLACEHOLDER}", "".join(parts))


class _Walk:
    """One walk over one value: what matches, and how much is still looked at."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = _compiled(tuple(patterns))
        self._known: dict[str, bool] = {}
        self._left = VALUES_MAX

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

    def value(self, value: Any, depth: int) -> Any:
        """Return *value* with what matches inside of it replaced."""
        if not self.patterns or not isinstance(value, (dict, list, tuple)):
            return value
        if depth >= DEPTH_MAX:
            return PLACEHOLDER
        if isinstance(value, dict):
            return self._object(value, depth)
        shown = []
        for item in value:
            if self._left <= 0:
                shown.append(PLACEHOLDER)
                break
            self._left -= 1
            shown.append(self.value(item, depth + 1))
        return shown

    def _object(self, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
        shown: dict[Any, Any] = {}
        for key, item in value.items():
            if self._left <= 0:
                shown[REST] = PLACEHOLDER
                break
            self._left -= 1
            hidden = self.hides(key if isinstance(key, str) else str(key))
            shown[key] = PLACEHOLDER if hidden else self.value(item, depth + 1)
        return shown


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


def _parameters(task_name: str) -> tuple[list[str], str | None]:
    """Return the names of positional parameters, and that of what exceeds them."""
    task = find_sender(task_name)
    if task is None:
        return [], None
    try:
        parameters = list(inspect.signature(task.function).parameters.values())
    except (TypeError, ValueError):
        return [], None
    if task.options.takes_context:
        parameters = parameters[1:]  # The context is no argument of the job.
    names = [
        parameter.name
        for parameter in parameters
        if parameter.kind
        in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    rest = [p.name for p in parameters if p.kind == p.VAR_POSITIONAL]
    return names, rest[0] if rest else None


def _is_hidden(walk: _Walk, found: re.Match[str]) -> bool:
    if _is_header(found) and EXCEPTION.search(found["name"]):
        return False
    return walk.hides(found["name"])


def _is_header(found: re.Match[str]) -> bool:
    return found["quote"] is None and found["sign"] == ":"


class _Ends:
    """Where the values in one text end. In doubt: further on rather than too early."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._left = len(text) * LOOKS_MAX

    def of_value(self, found: re.Match[str]) -> int:
        """Return the place behind the value whose name was *found*."""
        text, start = self._text, found.end()
        opening = OPENING.match(text, start)
        end: int | None
        if opening is not None:
            end = self._closing_quote(opening)
        elif text[start : start + 1] in BRACKETS:
            end = self._closing_bracket(start)
        elif not _is_header(found):
            return self._bare(start)
        else:
            end = None
        if end is None:
            # Nothing closes it; and a header has no end but that of its line.
            end = self._line(start)
        self._left -= end - start
        return end if self._left > 0 else len(text)

    def _closing_quote(self, opening: re.Match[str]) -> int | None:
        # What closes has as many backslashes as what opens; more belong to the text.
        closing = rf"(?<!\\){re.escape(opening['escapes'])}{opening['quote']}"
        closed = re.compile(closing).search(self._text, opening.end())
        if closed is None:
            # An eighth: a search for one text is quicker than a walk over brackets.
            self._left -= (len(self._text) - opening.end()) // 8
            return None
        return closed.end()

    def _closing_bracket(self, start: int) -> int | None:
        closers: list[str] = []
        quote = ""
        for found in IN_BRACKETS.finditer(self._text, start):
            piece = found[0]
            self._left -= 1
            if self._left <= 0:
                break
            if quote:
                quote = "" if piece == quote else quote
            elif piece in ("'", '"'):
                quote = piece
            elif piece in BRACKETS:
                closers.append(BRACKETS[piece])
            elif piece == closers[-1]:
                closers.pop()
                if not closers:
                    return found.end()
        return None

    def _bare(self, start: int) -> int:
        word = BARE.match(self._text, start)
        assert word is not None  # It matches the empty text too.
        if word[0].lower() in SCHEMES:
            word = BARE.match(self._text, word.end() + 1) or word
        return word.end() - (len(word[0]) - len(word[0].rstrip("'\"")))

    def _line(self, start: int) -> int:
        end = self._text.find("\n", start)
        return len(self._text) if end < 0 else end
