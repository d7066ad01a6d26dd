"""Place: where everything is measured, in words that a worker process is told too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A scratch database or, if the role may make none, a schema."""

    name: str
    is_schema: bool = False
    # DATABASES entries of the embedded server, where the project has no database.
    server: Mapping[str, Any] | None = None

    @property
    def kind(self) -> str:
        """Return what it is, for people."""
        return "schema" if self.is_schema else "database"

    def settings(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """Return an entry of DATABASES that leads here instead of to its own tables."""
        changed = {**told, **(self.server or {})}
        if not self.is_schema:
            return {**changed, "NAME": self.name}
        # The last of two -c counts. Nothing but the schema: a table that is missing in
        # it is an error, and not one of the project's.
        options = dict(changed.get("OPTIONS") or {})
        before = options.get("options", "")
        options["options"] = f"{before} -c search_path={self.name}".strip()
        return {**changed, "OPTIONS": options}

    def as_text(self) -> str:
        """Return it as one argument of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Place:
        """Read what as_text() wrote."""
        return cls(**json.loads(text))
