"""Tables of parts (strategies, client rules, models, ...): name, place and settings of every possible choice.

A part is imported only when it is used, and a table can be read without importing torch. Therefore the settings of
a part are in a small dataclass in the table, or in the signature of its class or function if that module is cheap
to import.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar

from .errors import ConfigError, unknown
from .settings import REQUIRED, Field, Influence, Plain, Setting, check_fields, fields_of


@dataclass
class Choice:
    """The configuration of one group: the name of the chosen part, and its settings (in subclasses)."""

    name: str = "???"  # OmegaConf's mark for a required value


@dataclass(frozen=True, eq=False)
class Part:
    """One part that can be chosen.

    `place`: `module:attribute` relative to the table's package, or the object itself. `about`: one line that
    describes it, with its source. `settings`: a dataclass with its settings; if None, they are in the signature of
    the object at `place`. `given`: fixed arguments that belong to this name and cannot be set. `losses`: those
    with which it can be used (of a task); all if empty. `last_layer`: whether it needs a network whose result is
    the output of a linear module.
    """

    name: str
    place: str | Callable[..., Any]
    about: str
    settings: type | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    losses: tuple[str, ...] = ()
    last_layer: bool = False


USER_PARTS: dict[str, dict[str, Part]] = {}
"""User-defined parts, by group and name. They also appear in the table of their group."""

MODULE_PREFIX = "fedstride_parts_"
"""Prefix of the module name of a parts file; the name of the file follows."""

HALF = "half"
"""The group of client halves: the code that a server rule needs on the client. A user does not choose a half; the
server rule names it."""

METRIC = "metric"
"""The group of figures of predictions, which `task.metrics` chooses by name, several at once."""

T = TypeVar("T", bound=Callable[..., Any])


def part(about: str = "", *, losses: Sequence[str] = (), **choice: str) -> Callable[[T], T]:
    """Decorator that registers your class or function as a part: `@part(strategy="mine")`.

    `choice` is one `group=name`. `about` is one line for listings; the default is the first line of the docstring.
    `losses`: the losses of tasks (docs/tasks.md) with which it can be used, if not with all. The part's settings
    are the parameters of its signature whose annotation contains a `Setting`. Raises ConfigError if not exactly
    one group is given, if the name is not an identifier, or if another part of the file has the same name in this
    group.
    """
    if len(choice) != 1:
        raise ConfigError(f"@part({choice}) is not allowed: name exactly one group, as in @part(strategy='mine')")
    ((group, name),) = choice.items()
    if not isinstance(name, str) or not name.isidentifier():  # the name is used in overrides, messages and folders
        raise ConfigError(
            f"@part({group}={name!r}) is not allowed: a name must be letters, digits and underscores, and must "
            "not begin with a digit"
        )

    def register(target: T) -> T:
        if name in USER_PARTS.get(group, {}) and str(getattr(target, "__module__", "")).startswith(MODULE_PREFIX):
            raise ConfigError(
                f"@part({group}={name!r}) is already defined; give each part of a group a different name"
            )
        line = next(iter((inspect.getdoc(target) or name).splitlines()))
        USER_PARTS.setdefault(group, {})[name] = Part(name, target, about or line, losses=tuple(losses))
        return target

    return register


class Table(Mapping[str, Part]):
    """The parts of one group, by name, user-defined parts included.

    `base`: the dataclass from which all configurations of the group are derived; its fields are shared by all
    parts. `kind`: the kind of the group's settings that do not have one themselves. `signatures`: whether settings
    are read from the signatures of the parts, which imports their modules; if False, a part without a settings
    dataclass has no settings.
    """

    def __init__(
        self,
        group: str,
        package: str | None,
        *parts: Part,
        base: type[Choice] = Choice,
        kind: Influence = Influence.SETTING,
        signatures: bool = False,
    ) -> None:
        self.group, self.base, self.kind = group, base, kind
        self._package, self._signatures = package, signatures
        self._configs: dict[Part, type[Choice]] = {}
        self._parts = {part.name: part for part in parts}

    def __getitem__(self, name: str) -> Part:
        return self._parts[name] if name in self._parts else USER_PARTS.get(self.group, {})[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._parts
        yield from (name for name in USER_PARTS.get(self.group, {}) if name not in self._parts)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def built_in(self) -> list[Part]:
        """The built-in parts, without the user-defined ones."""
        return list(self._parts.values())

    def find(self, name: str) -> Part:
        """A part by name. Raises ConfigError, with the most similar names, for an unknown name."""
        if name not in self:
            raise unknown(self.group, name, self)
        return self[name]

    def load(self, name: str) -> Any:
        """Import and return the object at the part's place. Raises ConfigError for an unknown name."""
        place = self.find(name).place
        if not isinstance(place, str):
            return place
        module, _, attribute = place.partition(":")
        return getattr(import_module(f".{module}", self._package), attribute)

    def fields(self, name: str) -> Mapping[str, Field]:
        """The part's own settings, without the settings that all parts of the group share."""
        part = self.find(name)
        if part.settings is not None:
            settings = fields_of(part.settings)
        elif self._signatures or not isinstance(part.place, str):
            settings = fields_of(self.load(name))
        else:
            settings = {}
        shared = fields_of(self.base)
        return {key: f for key, f in settings.items() if key not in shared and key not in part.given}

    def all_fields(self, name: str) -> Mapping[str, Field]:
        """All settings of the part: those that the group shares, then its own."""
        return {**fields_of(self.base), **self.fields(name)}

    def kind_of(self, setting: Field) -> Influence:
        """The kind of a setting of this group: its own, else SETTING if it is shared, else the group's kind."""
        shared = setting.name in fields_of(self.base)
        return setting.setting.kind or (Influence.SETTING if shared else self.kind)

    def config(self, name: str) -> type[Choice]:
        """The dataclass of a configuration that chooses this part. Its fields are `name` and the settings."""
        part = self.find(name)
        if part not in self._configs:
            settings = [(f.name, f.schema_type, _as_field(f)) for f in self.fields(name).values()]
            wrapped = [("inner", Choice, field(default_factory=Choice))] if self.wraps(name) else []
            head = ("name", str, field(default=name))
            self._configs[part] = dataclasses.make_dataclass(
                f"{self.group.title()}_{name}", [head, *settings, *wrapped], bases=(self.base,)
            )
        return self._configs[part]

    def placeholder_config(self, name: str, values: Mapping[str, Any]) -> type[Choice]:
        """The dataclass of a configuration whose part is unknown: user-defined, and its file is not loaded.

        Such a configuration can be read and compared, but not checked and not built.
        """
        shared = {f.name for f in dataclasses.fields(self.base)}
        settings = [(key, Any, field(default=None)) for key in values if key not in shared | {"inner"}]
        wrapped = [("inner", Choice, field(default_factory=Choice))] if "inner" in values else []
        fields = [("name", str, field(default=name)), *settings, *wrapped]
        return dataclasses.make_dataclass(f"{self.group.title()}_{name}", fields, bases=(self.base,))

    def fields_in(self, config: Any) -> Mapping[str, Field]:
        """The settings of a configuration of this group, also if its part is unknown."""
        if config.name in self:
            return self.all_fields(config.name)
        shared = fields_of(self.base)
        names = (f.name for f in dataclasses.fields(config) if f.name not in (*shared, "name", "inner"))
        return {
            **shared,
            **{name: Field(name, Any, None, Setting("setting of a part that is not loaded")) for name in names},
        }

    def wraps(self, name: str) -> bool:
        """Whether the part wraps another part of its group: its first parameter has the name of the group."""
        if not self._signatures and isinstance(self.find(name).place, str):
            return False
        return next(iter(inspect.signature(self.load(name)).parameters), None) == self.group

    def check(self, config: Any, path: str) -> None:
        """Raise ConfigError for a value out of its range. The message names the key as `path.KEY`."""
        check_fields(self.all_fields(config.name).values(), vars(config), path)

    def make(self, config: Any, *arguments: Any, **options: Any) -> Any:
        """Build the part that a configuration chooses: call the object at its place with the settings.

        The call is `part(*arguments, **settings, **options)`; a part with a settings dataclass is called with an
        instance of it as the first argument instead of `**settings`. Raises ConfigError if the part cannot be
        called so.
        """
        part = self.find(config.name)
        values = {key: getattr(config, key) for key in self.fields(config.name)}
        if part.settings is not None:
            arguments, values = (part.settings(**values), *arguments), {}
        kind, options = self.load(config.name), {**values, **part.given, **options}
        try:
            return kind(*arguments, **options)
        except TypeError as error:
            if (why := _why_not_called(kind, arguments, options)) is None:
                raise
            raise ConfigError(
                f"{self.group} = {config.name!r} is called with other arguments than it takes ({why}): "
                f"docs/own-parts.md says with which a {self.group} is called"
            ) from error

    # -------------------------------------------------------- as plain values, for a message

    def flatten(self, config: Any) -> dict[str, Plain]:
        """A configuration as `group.key: value`. None is left out, because a ConfigRecord cannot contain it."""
        keys = ("name", *self.all_fields(config.name))
        values = {f"{self.group}.{key}": getattr(config, key) for key in keys}
        return {key: value for key, value in values.items() if value is not None}

    def unflatten(self, record: Mapping[str, Any]) -> Any:
        """The configuration that `flatten` converted, checked.

        Raises ConfigError for an unknown name or key, which means that server and client have different versions,
        and for a value out of its range.
        """
        start = f"{self.group}."
        values = {key.removeprefix(start): value for key, value in record.items() if key.startswith(start)}
        name = values.get("name")
        known = isinstance(name, str) and name in self
        unknown_keys = set(values) - {"name", *self.all_fields(str(name))} if known else {f"name = {name!r}"}
        if unknown_keys:
            raise ConfigError(
                f"{start}{min(unknown_keys)} is unknown to this client (known names: {', '.join(sorted(self))}); "
                "run the same version of fedstride on server and clients",
                key=f"{start}{min(unknown_keys)}" if known else f"{start}name",
            )
        config = self.config(str(name))(**values)
        self.check(config, self.group)
        return config


def _as_field(setting: Field) -> Any:
    if setting.default is REQUIRED:
        return field(default="???")
    if isinstance(setting.default, (list, dict)):
        return field(default_factory=lambda: type(setting.default)(setting.default))
    return field(default=setting.default)


def _why_not_called(kind: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> str | None:
    """Why an object cannot be called with these arguments; None if it can, or if it is not known."""
    try:
        inspect.signature(kind).bind(*arguments, **options)
    except TypeError as error:
        return str(error)
    except ValueError:  # it has no signature
        pass
    return None
