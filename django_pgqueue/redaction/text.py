"""
Text: messages, tracebacks and values, without what nobody should read.

Nothing here raises, and the time that it takes grows with the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from django_pgqueue.redaction.names import PLACEHOLDER, SHAPE, Names

Span = tuple[int, int]

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

# A name that is a value itself, beside the value that it names: ("Cookie", "a=b"),
# {"name": "password", "value": "…"} in any order, and --password … of a command.
PAIR = re.compile(
    r"""(?:[(\[][ \t]{0,8}\\*(?=["'])|(?=["']-))(["'])(?P<name>[\w.-]++)\\*\1,"""
    r"""[ \t]{0,8}"""
)
BESIDE = re.compile(
    r"""[:=][ \t]{0,8}\\*(["'])(?P<name>[\w.-]++)\\*\1,[ \t]{0,8}"""
    r"""\\*["']?value\\*["']?[ \t]{0,8}[:=][ \t]{0,8}""",
    re.IGNORECASE,
)
AFTER = re.compile(
    r"""\bvalue\\*["']?[ \t]{0,8}[:=][ \t]{0,8}(?P<value>\\*(["'])[^"'\n]*+\\*\2),"""
    r"""[ \t]{0,8}\\*["']?\w{1,9}\\*["']?[ \t]{0,8}[:=][ \t]{0,8}"""
    r"""\\*(["'])(?P<name>[\w.-]++)\\*\3""",
    re.IGNORECASE,
)
FLAG = re.compile(r"(?<![\w-])(?P<name>--?[A-Za-z][\w-]*+)[ \t]{1,8}(?!-)(?=\S)")

# PostgreSQL's words for what broke a constraint: Key (a, api_token)=(1, …). Names are
# looked for in so many characters before the sign.
KEY_VALUES = re.compile(r"\)=\(")
KEY_NAMES_CHARACTERS_MAX = 500
ROW_VALUES = re.compile(r"Failing row contains \(")

# How a value begins and ends: in quotes, in brackets, or without either.
OPENING = re.compile(r"""[bBfFrRuU]{0,2}(?P<escapes>\\*)(?P<quote>\'\'\'|"{3}|'|")""")
# Of plain quotes: what is doubled, as in SQL, or escaped, belongs to the value.
CLOSED = {
    "'": re.compile(r"[^']*+(?:(?:(?<=\\)'|'')[^']*+)*+'"),
    '"': re.compile(r'[^"]*+(?:(?:(?<=\\)"|"")[^"]*+)*+"'),
}
BRACKETS = {"{": "}", "[": "]", "(": ")", "<": ">"}
IN_BRACKETS = re.compile(r"""\\.|["'{}\[\]()<>]""", re.DOTALL)
BARE = re.compile(r"""[^\s,;&]*""")
SCHEMES = frozenset({"basic", "bearer", "digest", "negotiate", "token"})

# Looking for the ends of values may take this many times the length of the text; then
# all the rest of it is replaced.
LOOKS_MAX = 2

# The password of a URL, such as a DSN in the message of a driver: up to the last @
# before the path.
USER_INFO = re.compile(r"://[^\s:/@'\"]*+:(?P<value>[^\s/'\"]*)@")

# A text without any of these has nothing to hide.
SIGNS = re.compile(r"[=:(\[_-]|AKIA|ASIA|AIza|SG\.|eyJ|hooks\.")


def redact_text(text: str, patterns: Iterable[str]) -> str:
    """
    Return a message or a traceback with the values of matching names replaced.

    Found are key=value, 'key': 'value' (with any quotes, escaped or not), Key: value
    (up to the end of its line, as in an HTTP header), pairs of a name and a value,
    --key value, PostgreSQL's Key (…)=(…), the password of a URL, and what has the shape
    of a well-known secret.
    """
    return replaced(text, hidden_spans(text, Names(patterns)))


def replaced(text: str, spans: Iterable[Span]) -> str:
    """Return *text* with a placeholder for each of *spans*."""
    parts: list[str] = []
    done = 0
    for start, end in spans:
        parts += text[done:start], PLACEHOLDER
        done = end
    return "".join((*parts, text[done:]))


def hidden_spans(text: str, names: Names) -> list[Span]:
    """
    Return the places of *text* that nobody should read, in order and apart.

    Args:
        text: A message, a traceback, or a string among the arguments.
        names: Which names are secret. Without any, nothing is hidden.
    """
    if not names.patterns or SIGNS.search(text) is None:
        return []
    found = [
        *_named(text, names),
        *(m.span("value") for m in AFTER.finditer(text) if names.hides(m["name"])),
        *_of_constraints(text, names),
        *(match.span("value") for match in USER_INFO.finditer(text)),
        *(match.span() for match in SHAPE.finditer(text)),
    ]
    apart: list[Span] = []
    for start, end in sorted(found):
        if apart and start <= apart[-1][1]:
            apart[-1] = apart[-1][0], max(end, apart[-1][1])
        else:
            apart.append((start, end))
    return apart


def _named(text: str, names: Names) -> Iterator[Span]:
    ends = _Ends(text)
    for expression in (NAMED, PAIR, BESIDE, FLAG):
        done = 0
        for found in expression.finditer(text):
            start = found.end()
            if found.start() < done or not _is_hidden(names, found, expression):
                continue
            if expression is PAIR and OPENING.match(text, start) is None:
                continue
            is_header = expression is NAMED and _is_header(found)
            done = ends.of_value(start, is_header)
            yield start, done


def _of_constraints(text: str, names: Names) -> Iterator[Span]:
    done = 0
    for found in KEY_VALUES.finditer(text):
        if found.start() < done:
            continue
        start = max(done, found.start() - KEY_NAMES_CHARACTERS_MAX)
        done = found.end()
        columns = re.split(r"\W+", text[start : found.start()].rpartition("\n")[2])
        if any(map(names.hides, columns)):
            done = _last_bracket(text, found.end())
            yield found.end(), done
    for found in ROW_VALUES.finditer(text):
        # Its values have no names, and it may have any.
        if found.start() >= done:
            done = _last_bracket(text, found.end())
            yield found.end(), done


def _last_bracket(text: str, start: int) -> int:
    """Return the place of the last closing bracket of the line, or its end."""
    line_end = text.find("\n", start)
    if line_end < 0:
        line_end = len(text)
    end = text.rfind(")", start, line_end)
    return line_end if end < 0 else end


def _is_hidden(names: Names, found: re.Match[str], expression: re.Pattern[str]) -> bool:
    if expression is NAMED and _is_header(found) and EXCEPTION.search(found["name"]):
        return False
    return names.hides(found["name"])


def _is_header(found: re.Match[str]) -> bool:
    return found["quote"] is None and found["sign"] == ":"


class _Ends:
    """Where the values in one text end. In doubt: further on rather than too early."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._left = len(text) * LOOKS_MAX

    def of_value(self, start: int, is_header: bool) -> int:
        """Return the place behind the value that begins at *start*."""
        text = self._text
        opening = OPENING.match(text, start)
        end: int | None
        if opening is not None:
            end = self._closing_quote(opening)
        elif text[start : start + 1] in BRACKETS:
            end = self._closing_bracket(start)
        elif not is_header:
            return self._bare(start)
        else:
            end = None
        if end is None:
            # Nothing closes it; and a header has no end but that of its line.
            end = self._line(start)
        self._left -= end - start
        return end if self._left > 0 else len(text)

    def _closing_quote(self, opening: re.Match[str]) -> int | None:
        quote = opening["quote"]
        if quote in CLOSED and not opening["escapes"]:
            closed = CLOSED[quote].match(self._text, opening.end())
        else:
            # As many backslashes as before what opens; more belong to the text.
            mark = f"{re.escape(opening['escapes'])}{quote}"
            closing = rf"(?:(?!(?<!\\){mark})[\s\S]|(?<!\\){mark}{mark})*+{mark}"
            closed = re.compile(closing).match(self._text, opening.end())
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
        # What closes a call or a list around it is no part of it.
        return word.end() - (len(word[0]) - len(word[0].rstrip("'\")]}")))

    def _line(self, start: int) -> int:
        end = self._text.find("\n", start)
        return len(self._text) if end < 0 else end
