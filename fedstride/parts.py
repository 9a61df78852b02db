"""What there is to choose from: one table a room, one line a part, imported when it is used.

Knows names, places and settings; does not know what any part does. A table is read without importing torch:
the settings of a part stand in a light dataclass beside its line, or in the signature of what stands at its
place, where that is light itself.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar

from .errors import ConfigError, unknown
from .settings import REQUIRED, Field, Kind, Plain, Setting, check_fields, fields_of


@dataclass
class Choice:
    """What a group of the configuration holds: a part's name and its settings."""

    name: str = "???"  # OmegaConf's mark for a value that must be given


@dataclass(frozen=True, eq=False)
class Part:
    """One thing to choose.

    `place`: `module:attribute` below the table's package, or the object itself. `about`: one line that says
    what it is, with its source. `settings`: a dataclass; where there is none, the signature at `place`
    has them. `given`: arguments that the name stands for.
    """

    name: str
    place: str | Callable[..., Any]
    about: str
    settings: type | None = None
    given: Mapping[str, Any] = field(default_factory=dict)


OWN: dict[str, dict[str, Part]] = {}
"""Parts of a user's own, by group and name: each table of the group has them too."""

MODULE = "fedstride_parts_"
"""How the module of a file with parts is called, before the file's own name."""

HALF = "half"
"""The group of what clients do for a server rule; nobody chooses it, the rule names it."""

T = TypeVar("T", bound=Callable[..., Any])


def part(about: str = "", **choice: str) -> Callable[[T], T]:
    """Make a class or function of one's own a part: `@part(strategy="mine")`.

    `choice` is one `group=name`; `about` one line for listings, by default the docstring's first. Its settings
    are the parameters of its signature whose annotations hold a `Setting`.
    Raises ConfigError where not exactly one group is named, for a name that is no word, and for one that another
    part of a file has.
    """
    if len(choice) != 1:
        raise ConfigError(f"@part({choice}) is not allowed: name one group, as in @part(strategy='mine')")
    ((group, name),) = choice.items()
    if not isinstance(name, str) or not name.isidentifier():  # it becomes part of overrides, messages and folders
        raise ConfigError(f"@part({group}={name!r}) is not allowed: a name is letters, digits and underscores")

    def register(target: T) -> T:
        if name in OWN.get(group, {}) and str(getattr(target, "__module__", "")).startswith(MODULE):
            raise ConfigError(f"@part({group}={name!r}) is there already: give each part of a group its own name")
        line = next(iter((inspect.getdoc(target) or name).splitlines()))
        OWN.setdefault(group, {})[name] = Part(name, target, about or line)
        return target

    return register


class Table(Mapping[str, Part]):
    """The parts of one group, by name.

    `base`: the dataclass that all configurations of the group derive from; its fields are shared. `kind`:
    of its keys where they do not say so themselves. `signatures`: whether the parts' places are light enough
    to be imported for their settings; otherwise a part without a settings dataclass has none.
    """

    def __init__(
        self,
        group: str,
        package: str | None,
        *parts: Part,
        base: type[Choice] = Choice,
        kind: Kind = Kind.SETTING,
        signatures: bool = False,
    ) -> None:
        self.group, self.base, self.kind = group, base, kind
        self._package, self._signatures = package, signatures
        self._configs: dict[Part, type[Choice]] = {}
        self._parts = {part.name: part for part in parts}

    def __getitem__(self, name: str) -> Part:
        return self._parts[name] if name in self._parts else OWN.get(self.group, {})[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._parts
        yield from (name for name in OWN.get(self.group, {}) if name not in self._parts)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def built_in(self) -> list[Part]:
        """The table's own parts, without a user's."""
        return list(self._parts.values())

    def find(self, name: str) -> Part:
        """A part by name. Raises ConfigError with the nearest names where there is none."""
        if name not in self:
            raise unknown(self.group, name, self)
        return self[name]

    def load(self, name: str) -> Any:
        """What stands at the part's place; imports it. Raises ConfigError for an unknown name."""
        place = self.find(name).place
        if not isinstance(place, str):
            return place
        module, _, attribute = place.partition(":")
        return getattr(import_module(f".{module}", self._package), attribute)

    def fields(self, name: str) -> Mapping[str, Field]:
        """The part's own settings, without those that all parts of the group share."""
        part = self.find(name)
        if part.settings is not None:
            found = fields_of(part.settings)
        elif self._signatures or not isinstance(part.place, str):
            found = fields_of(self.load(name))
        else:
            found = {}
        shared = fields_of(self.base)
        return {key: f for key, f in found.items() if key not in shared and key not in part.given}

    def all_fields(self, name: str) -> Mapping[str, Field]:
        """The shared settings and the part's own."""
        return {**fields_of(self.base), **self.fields(name)}

    def kind_of(self, setting: Field) -> Kind:
        """What a key of this group is to a result: its own word, else that of all parts, else the group's."""
        shared = setting.name in fields_of(self.base)
        return setting.setting.kind or (Kind.SETTING if shared else self.kind)

    def config(self, name: str) -> type[Choice]:
        """The dataclass of a configuration that chooses this part: `name` and its settings as fields."""
        part = self.find(name)
        if part not in self._configs:
            own = [(f.name, f.schema_type, _as_field(f)) for f in self.fields(name).values()]
            wrapped = [("inner", Choice, field(default_factory=Choice))] if self.wraps(name) else []
            head = ("name", str, field(default=name))
            self._configs[part] = dataclasses.make_dataclass(
                f"{self.group.title()}_{name}", [head, *own, *wrapped], bases=(self.base,)
            )
        return self._configs[part]

    def stand_in(self, name: str, values: Mapping[str, Any]) -> type[Choice]:
        """A configuration's type for a name that is not known here: a user's own part whose file is not loaded.

        It can be read and compared, neither checked nor built.
        """
        shared = {f.name for f in dataclasses.fields(self.base)}
        own = [(key, Any, field(default=None)) for key in values if key not in shared | {"inner"}]
        held = [("inner", Choice, field(default_factory=Choice))] if "inner" in values else []
        head = ("name", str, field(default=name))
        return dataclasses.make_dataclass(f"{self.group.title()}_{name}", [head, *own, *held], bases=(self.base,))

    def fields_in(self, config: Any) -> Mapping[str, Field]:
        """The settings of a configuration of this group, also where its part is not known here."""
        if config.name in self:
            return self.all_fields(config.name)
        shared = fields_of(self.base)
        own = (f.name for f in dataclasses.fields(config) if f.name not in (*shared, "name", "inner"))
        return {
            **shared,
            **{name: Field(name, Any, None, Setting("of a part that is not loaded")) for name in own},
        }

    def wraps(self, name: str) -> bool:
        """Whether the part takes another one of its group: its first parameter is called as the group is."""
        if not self._signatures and isinstance(self.find(name).place, str):
            return False
        return next(iter(inspect.signature(self.load(name)).parameters), None) == self.group

    def check(self, config: Any, path: str) -> None:
        """Raises ConfigError for a value out of its range; `path` stands before the key."""
        check_fields(self.all_fields(config.name).values(), vars(config), path)

    def make(self, config: Any, *arguments: Any, **options: Any) -> Any:
        """The part that a configuration chooses, built: its place called with its settings.

        `arguments` come before them, `options` beside. A part with a settings dataclass is called with one.
        """
        part = self.find(config.name)
        values = {key: getattr(config, key) for key in self.fields(config.name)}
        if part.settings is not None:
            return self.load(config.name)(part.settings(**values), *arguments, **part.given, **options)
        return self.load(config.name)(*arguments, **values, **part.given, **options)

    # -------------------------------------------------------- as plain values, for a message

    def flatten(self, config: Any) -> dict[str, Plain]:
        """A configuration as `group.key: value`; None is left out, since a ConfigRecord cannot hold it."""
        keys = ("name", *self.all_fields(config.name))
        values = {f"{self.group}.{key}": getattr(config, key) for key in keys}
        return {key: value for key, value in values.items() if value is not None}

    def unflatten(self, record: Mapping[str, Any]) -> Any:
        """The configuration that `flatten` took apart, checked.

        Raises ConfigError for a name or key that is not known here: server and client differ in version.
        """
        start = f"{self.group}."
        values = {key.removeprefix(start): value for key, value in record.items() if key.startswith(start)}
        name = values.get("name")
        known = isinstance(name, str) and name in self
        strange = set(values) - {"name", *self.all_fields(str(name))} if known else {f"name = {name!r}"}
        if strange:
            raise ConfigError(
                f"{start}{min(strange)} is not known to this client (known names: {', '.join(sorted(self))}); "
                "run the same version of fedstride on server and clients"
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
