"""
Operations: what users write into their migrations.

    operations = [CaptureChanges("shop.Order", topic="orders.changes")]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.db import router
from django.db.migrations.operations import DeleteModel
from django.db.migrations.operations.base import Operation, OperationCategory

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import DeclarationError, SchemaError, shown
from django_pgqueue.log.captures import (
    ACTS,
    NAME_CHARACTERS_MAX,
    WAKES,
    Act,
    Capture,
    Wakes,
    has_function,
    replace,
)
from django_pgqueue.log.names import check_name
from django_pgqueue.redaction.names import Names

APP = "pgqueue"
MIGRATION = "0002_log"

# Where the state of a model has its captures, by their names. Django takes no notice of
# options that begin so.
OPTION = "_pgqueue_captures"


class CaptureChanges(Operation):
    """
    Publish each row of a model that is inserted, updated or deleted, whoever does it.

        CaptureChanges("shop.Order", topic="orders.changes", fields=["status", "total"])

    Triggers of the table publish, in the writer's transaction: bulk updates, raw SQL,
    COPY and cascades too, and other languages. The migration depends on
    ("pgqueue", "0002_log"). A second operation for the same model and topic takes
    the place of the first; with ``on=()`` nothing is captured any more.

    Args:
        model: "app.Model"; its table is captured, and none that it inherits from.
        topic: What messages are called, before ".insert", ".update" or ".delete"; the
            first word is the topic. At most 40 characters; by default the model's label
            in lower case, "shop.order".
        on: Which of "insert", "update" and "delete" are captured.
        fields: Names of the model's fields. Messages have the values of these, and an
            update that changes none of them publishes nothing. None: all columns that
            the table has, later ones too, but those whose names PGQUEUE['REDACT'] hides
            when the migration runs.
        when: SQL about the rows ``old`` and ``new``, of columns: "new.total > 100". A
            row that there is not has NULL in each.
        wakes: "on_commit": Django, where it has written, wakes workers after the
            commit; what others write is found within the poll interval. "now": the
            trigger notifies, so that all are heard, and commits wait for one another.

    Raises:
        DeclarationError: A value is wrong, or the model has no such field, when the
            operation is made or its state is reckoned; the model is stored in another
            database than PGQUEUE['DATABASE'], when it runs.
        SchemaError: The migration of pgqueue is not applied, when it runs.
        TopicError: No message can be called so.
    """

    reversible = True
    category = OperationCategory.SQL

    def __init__(
        self,
        model: str,
        *,
        topic: str | None = None,
        on: Iterable[Act] = ACTS,
        fields: Sequence[str] | None = None,
        when: str | None = None,
        wakes: Wakes = "on_commit",
    ) -> None:
        self.app_label, self.model_name = _label(model)
        self.model = model
        self.topic = check_name(model.lower() if topic is None else topic)
        if len(self.topic) > NAME_CHARACTERS_MAX:
            raise self._error(
                f"the topic {self.topic!r} has {len(self.topic)} characters; the limit "
                f"is {NAME_CHARACTERS_MAX}, since triggers are called so. Say another: "
                f"topic=…."
            )
        self.on = self._on(on)
        self.fields = self._fields(fields)
        if when is not None and (not isinstance(when, str) or not when.strip()):
            raise self._error(
                f"when={shown(when)}: write SQL about the rows old and new, such as "
                f"'new.total > 100'."
            )
        self.when = when
        if wakes not in WAKES:
            raise self._error(f"wakes={shown(wakes)}: it is one of {_listed(WAKES)}.")
        self.wakes: Wakes = wakes

    def deconstruct(self) -> tuple[str, Sequence[Any], dict[str, Any]]:
        """Return what makes it again."""
        said: dict[str, Any] = {"topic": self.topic}
        if self.on != ACTS:
            said["on"] = list(self.on)
        if self.fields is not None:
            said["fields"] = list(self.fields)
        if self.when is not None:
            said["when"] = self.when
        if self.wakes != "on_commit":
            said["wakes"] = self.wakes
        return type(self).__name__, [self.model], said

    def describe(self) -> str:
        """Return a line for people."""
        if not self.on:
            return f"Capture no more changes of {self.model} for {self.topic}"
        return f"Capture changes of {self.model} for {self.topic}"

    @property
    def migration_name_fragment(self) -> str:
        """What a migration of this alone is called."""
        return f"capture_{self.model_name}"

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Note the capture in the state of the model."""
        found = state.models.get((self.app_label, self.model_name))
        if found is None:
            raise self._error(
                f"no migration before this one makes {self.model}: add that of its app "
                f"to the dependencies."
            )
        if found.options.get("proxy"):
            raise self._error("it is a proxy: name the model that has the table.")
        for name in self.fields or ():
            if name not in found.fields:
                known = ", ".join(found.fields)
                raise self._error(
                    f"the model has no field {name!r} of its own; it has {known}."
                )
            if not getattr(found.fields[name], "db_persist", True):
                raise self._error(
                    f"{name!r} is made when it is read, so no trigger sees it."
                )
            if found.fields[name].many_to_many:
                raise self._error(
                    f"{name!r} is in a table of its own: capture its through model."
                )
        captures = {**found.options.get(OPTION, {}), self.topic: self}
        if not self.on:
            del captures[self.topic]
        found.options = {**found.options, OPTION: captures}

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Make the triggers, in place of those of an earlier capture."""
        self._replace(schema_editor, from_state, to_state)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Make those of the earlier capture again, or none."""
        self._replace(schema_editor, from_state, to_state)

    def references_model(self, name: str, app_label: str) -> bool:
        """Whether it is about this model."""
        return (app_label, name.lower()) == (self.app_label, self.model_name)

    def reduce(self, operation: Operation, app_label: str) -> Any:
        """Let a later capture of the same, or the end of the model, take its place."""
        if isinstance(operation, CaptureChanges):
            mine = self.app_label, self.model_name, self.topic
            if mine == (operation.app_label, operation.model_name, operation.topic):
                return [operation]
        elif isinstance(operation, DeleteModel) and self.references_model(
            operation.name, app_label
        ):
            return [operation]
        return super().reduce(operation, app_label)

    def _replace(self, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        connection = schema_editor.connection
        model = to_state.apps.get_model(self.app_label, self.model_name)
        alias = get_settings().database
        written = router.db_for_write(model)
        if written != alias:
            raise self._error(
                f"it is stored in the database {written!r}, and messages in {alias!r}: "
                f"they would not commit together. Capture models of {alias!r}."
            )
        if connection.alias != alias or not router.allow_migrate_model(alias, model):
            return
        if not schema_editor.collect_sql:
            with connection.cursor() as cursor:
                if not has_function(cursor):
                    raise SchemaError(
                        f"CaptureChanges({self.model!r}): the migration of pgqueue is "
                        f"not applied: add ({APP!r}, {MIGRATION!r}) to the "
                        f"dependencies of yours."
                    )
        before, after = self._noted(from_state), self._noted(to_state)
        replace(
            schema_editor,
            model._meta.db_table,
            self.topic,
            before=() if before is None else before.on,
            capture=None if after is None else after.as_capture(model),
        )

    def as_capture(self, model: Any) -> Capture:
        """Return what the triggers are told, of a model as it is then."""
        settings = get_settings()
        columns = None
        if self.fields is not None:
            columns = tuple(model._meta.get_field(name).column for name in self.fields)
        return Capture(
            name=self.topic,
            on=self.on,
            columns=columns,
            without=() if columns is not None else tuple(_hidden(model)),
            when=self.when,
            wakes=self.wakes,
            bytes_max=settings.payload_bytes_max,
        )

    def _noted(self, state: Any) -> CaptureChanges | None:
        found = state.models[self.app_label, self.model_name]
        noted: CaptureChanges | None = found.options.get(OPTION, {}).get(self.topic)
        return noted

    def _on(self, on: Iterable[Act]) -> tuple[Act, ...]:
        given = list(on) if not isinstance(on, str) else None
        if given is None or any(act not in ACTS for act in given):
            raise self._error(f"on={shown(on)}: it is a list of {_listed(ACTS)}.")
        return tuple(act for act in ACTS if act in given)

    def _fields(self, fields: Sequence[str] | None) -> tuple[str, ...] | None:
        if fields is None:
            return None
        names = () if isinstance(fields, str) else tuple(fields)
        if not names or not all(isinstance(name, str) for name in names):
            raise self._error(
                f"fields={shown(fields)}: it is a list of names of fields, or None for "
                f"all."
            )
        return names

    def _error(self, problem: str) -> DeclarationError:
        return DeclarationError(f"CaptureChanges({self.model!r}): {problem}")


def declared_captures() -> dict[str, dict[str, CaptureChanges]]:
    """
    Return what migrations capture: by labels of models in lower case, and by topics.

    All migrations of the code count, applied or not. Django tells itself of those that
    contradict each other; then this returns nothing.
    """
    from django.db.migrations.exceptions import (
        BadMigrationError,
        CircularDependencyError,
        NodeNotFoundError,
    )
    from django.db.migrations.loader import MigrationLoader

    try:
        state = MigrationLoader(None, ignore_no_migrations=True).project_state()
    except (BadMigrationError, CircularDependencyError, NodeNotFoundError):
        return {}
    return {
        f"{model.app_label}.{model.name_lower}": captures
        for model in state.models.values()
        if (captures := model.options.get(OPTION))
    }


def _label(model: object) -> tuple[str, str]:
    """Return the label of an app, and the name of a model in lower case."""
    app_label, _, name = (
        model.partition(".") if isinstance(model, str) else ("", "", "")
    )
    if not app_label or not name.isidentifier():
        raise DeclarationError(
            f"CaptureChanges({shown(model)}): name the model as 'shop.Order'."
        )
    if app_label == APP:
        raise DeclarationError(
            f"CaptureChanges({model!r}): what is captured is written into tables of "
            f"this app, so their changes cannot be."
        )
    return app_label, name.lower()


def _hidden(model: Any) -> Iterator[str]:
    """Return the columns whose values nobody should read."""
    names = Names(get_settings().redact)
    for field in model._meta.local_concrete_fields:
        if names.hides(field.name) or names.hides(field.column):
            yield field.column


def _listed(words: Iterable[str]) -> str:
    return ", ".join(map(repr, words))
