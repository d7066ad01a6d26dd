"""Webhooks: documents of the shapes that services post, made from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.acceptance.naughty import STRINGS

Json = Any


class Webhooks:
    """Makes documents; the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def documents(self, count: int) -> list[Json]:
        """Return *count* documents, of all shapes in turn."""
        shapes = self.shapes()
        return [shapes[place % len(shapes)]() for place in range(count)]

    def shapes(self) -> list[Callable[[], Json]]:
        return [
            self.payment,
            self.push,
            self.order,
            self.chat,
            self.mail_events,
            self.cloud_event,
            self.geo,
            self.metrics,
            self.crash_report,
            self.form,
            self.patch,
            self.translations,
            self.tree,
            self.anything,
        ]

    # Parts -------------------------------------------------------------------------

    def text(self) -> str:
        return self.random.choice(STRINGS)

    def key(self) -> str:
        # The one key that is reserved is refused, by another row of the table.
        key = self.text()[:40]
        return "other" if key == "__pgqueue__" else key

    def hexadecimal(self) -> str:
        return f"{self.random.getrandbits(160):040x}"

    def identifier(self) -> str:
        return f"evt_{self.random.getrandbits(96):x}"

    def when(self) -> Json:
        moment = self.random.randrange(2**33)
        return self.random.choice(
            [moment, f"2026-07-{moment % 28 + 1:02}T12:00:00Z", None, moment / 1000]
        )

    def money(self) -> Json:
        cents = self.random.randrange(10**7)
        return self.random.choice([cents, f"{cents / 100:.2f}", cents / 100])

    def number(self) -> Json:
        pick = self.random
        return pick.choice(
            [
                pick.randrange(-(2**63), 2**63),
                pick.randrange(-5, 5),
                pick.uniform(-1e3, 1e3),
                pick.uniform(0, 1) * 10.0 ** pick.randrange(-300, 300),
                float(pick.randrange(100)),
                10 ** pick.randrange(400),
                2**53 + 1,
                0,
                -0.0,
            ]
        )

    def leaf(self) -> Json:
        return self.random.choice(
            [None, True, False, self.number(), self.text(), self.when(), "", [], {}]
        )

    def several(self, make: Callable[[], Json], most: int = 4) -> list[Json]:
        return [make() for _ in range(self.random.randrange(most + 1))]

    def mapping(self, make: Callable[[], Json], most: int = 4) -> dict[str, Json]:
        return {self.key(): make() for _ in range(self.random.randrange(most + 1))}

    # Shapes ------------------------------------------------------------------------

    def payment(self) -> Json:
        return {
            "id": self.identifier(),
            "object": "event",
            "api_version": "2026-01-01",
            "created": self.when(),
            "livemode": self.random.random() < 0.5,
            "pending_webhooks": 0,
            "type": "charge.succeeded",
            "data": {
                "object": {
                    "amount": self.money(),
                    "currency": "jpy",
                    "metadata": self.mapping(self.text),
                    "refunds": {"data": self.several(self.money), "has_more": False},
                    "customer": None,
                },
                "previous_attributes": self.mapping(self.leaf),
            },
        }

    def push(self) -> Json:
        def commit() -> Json:
            return {
                "id": self.hexadecimal(),
                "message": self.text(),
                "author": {"name": self.text(), "email": "a@example.com"},
                "added": self.several(self.text),
                "removed": [],
                "distinct": True,
            }

        return {
            "ref": "refs/heads/main",
            "before": "0" * 40,
            "after": self.hexadecimal(),
            "forced": False,
            "commits": self.several(commit, 20),
            "head_commit": self.random.choice([None, commit()]),
            "repository": {"id": self.number(), "private": False, "topics": []},
        }

    def order(self) -> Json:
        def line() -> Json:
            return {
                "sku": self.text(),
                "quantity": self.random.randrange(100),
                "price": self.money(),
                "tax_lines": self.several(self.mapping_of_money),
                "properties": self.several(lambda: {"name": self.text(), "value": ""}),
            }

        return {
            "id": self.random.randrange(2**53, 2**63),
            "total": self.money(),
            "note": self.text(),
            "note_attributes": [],
            "line_items": self.several(line, 30),
            "shipping_address": {"name": self.text(), "latitude": -0.0, "zip": "01067"},
        }

    def mapping_of_money(self) -> Json:
        return self.mapping(self.money)

    def chat(self) -> Json:
        return {
            "token": self.hexadecimal(),
            "event": {
                "type": "message",
                "text": self.text(),
                "ts": "1700000000.000100",
                "blocks": self.several(
                    lambda: {"type": "rich_text", "elements": self.several(self.leaf)}
                ),
                "reactions": self.mapping(self.number),
            },
        }

    def mail_events(self) -> Json:
        return self.several(
            lambda: {
                "email": self.text(),
                "event": "bounce",
                "timestamp": self.when(),
                "smtp-id": f"<{self.hexadecimal()}@example.com>",
                "sg.category": [self.text()],
                "status": "5.0.0",
            },
            50,
        )

    def cloud_event(self) -> Json:
        return {
            "specversion": "1.0",
            "type": "com.example.object.created",
            "source": f"/{self.text()}",
            "id": self.identifier(),
            "time": self.when(),
            "datacontenttype": "application/json",
            "data": self.leaf(),
            "data_base64": "AAEC/w==",
        }

    def geo(self) -> Json:
        def position() -> Json:
            return [self.random.uniform(-180, 180), self.random.uniform(-90, 90)]

        return {
            "type": "FeatureCollection",
            "features": self.several(
                lambda: {
                    "type": "Feature",
                    "geometry": {
                        "type": "Polygon",
                        "coordinates": [[position() for _ in range(20)]],
                    },
                    "properties": self.mapping(self.leaf),
                }
            ),
        }

    def metrics(self) -> Json:
        return {
            "device": self.hexadecimal(),
            "samples": [[self.when(), self.number()] for _ in range(50)],
            "labels": self.mapping(self.text),
        }

    def crash_report(self) -> Json:
        return {
            "exception": {
                "values": self.several(
                    lambda: {
                        "type": "ValueError",
                        "value": self.text(),
                        "stacktrace": {
                            "frames": self.several(
                                lambda: {
                                    "filename": self.text(),
                                    "lineno": self.number(),
                                    "vars": self.mapping(self.text),
                                    "context_line": self.text(),
                                },
                                15,
                            )
                        },
                    }
                )
            },
            "breadcrumbs": self.several(self.text, 20),
            "extra": {"": "", " ": " ", "a.b": {"c.d": None}},
        }

    def form(self) -> Json:
        return {
            "form_response": {
                "answers": self.several(
                    lambda: {"type": "choices", "choices": self.several(self.text)}, 10
                ),
                "hidden": self.mapping(self.text),
                "calculated": {"score": self.number()},
            }
        }

    def patch(self) -> Json:
        return self.several(
            lambda: {"op": "replace", "path": f"/{self.key()}/0", "value": self.leaf()},
            10,
        )

    def translations(self) -> Json:
        return {locale: self.mapping(self.text, 20) for locale in ("de", "ar", "zh-TW")}

    def tree(self) -> Json:
        node: Json = self.leaf()
        for _ in range(self.random.randrange(60)):
            node = self.random.choice([{"children": [node]}, [node], {"next": node}])
        return node

    def anything(self, depth: int = 5) -> Json:
        if depth == 0 or self.random.random() < 0.3:
            return self.leaf()
        if self.random.random() < 0.5:
            return self.several(lambda: self.anything(depth - 1), 5)
        return self.mapping(lambda: self.anything(depth - 1), 5)
