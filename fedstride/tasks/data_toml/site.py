"""A site's own file about its data (`data.toml`): where they are, what they are, and the secret of its hold-out.

path = "/srv/data/tumours.csv"
id = "patient"                     # rows with one of these stay together in training or in measuring
secret = "hold-out.key"            # or split_seed = 1: draws that everybody with this number can repeat
targets = ["diagnosis"]            # columns that may be predicted

[columns]
age = { least = 0, most = 120, whole = true, empty = true }
sex = ["female", "male"]
ecg = { samples = 500 }            # the columns ecg_0 to ecg_499
diagnosis = ["malignant", "benign"]
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...files import atomic
from ...files.toml_file import read_toml
from ..evaluation.holdout import KEY_BYTES, key_of
from ..forms.columns import composed
from ..spec import Spec
from .dictionary import FOLDERS, NUMBER, SOUND, AllowedCells, Dictionary
from .dictionary_file import expanded, read_columns, read_examples
from .file_form import OF_TEXT, FileForm, read_form, without_form

SUFFIX = ".toml"
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

ARRAYS = ".npz"
COMMA_SEPARATED = (".csv", ".csv.gz")
TABLES = (*COMMA_SEPARATED, ".parquet")
"""How the names of files with arrays, and with a table, end."""

PATHS = ("path", "secret")
KEYS = (*PATHS, "id", "split_seed", "targets", "file", "columns", "examples")


@dataclass(frozen=True)
class SiteData:
    """A site's data.

    `key`: of the hold-out; None: it comes from the `split_seed` of a run. `dictionary`: what runs may name; None:
    whatever is in the files. `id`: a column.
    """

    path: Path
    key: bytes | None = None
    id: str = ""
    secret: Path | None = None  # the file of the key; None: it comes from a seed
    dictionary: Dictionary | None = None
    form: FileForm = field(default_factory=FileForm)  # of a table

    @property
    def order(self) -> bytes | None:
        """The key of the order of examples in training; None without a secret: the run's seed decides it then."""
        if self.secret is None or self.key is None:
            return None
        return hashlib.blake2b(b"fedstride order", key=self.key, digest_size=KEY_BYTES).digest()

    @property
    def is_table(self) -> bool:
        """Whether the data are one table."""
        return _is_table(self.path, self.form)

    @property
    def is_of_any_form(self) -> bool:
        """Whether runs make examples of different forms of the data: of recordings, and of images of any form."""
        said = {} if self.dictionary is None else self.dictionary.examples
        return said.get("kind") == SOUND or bool(said.get("any_form"))

    def check(self, spec: Spec) -> None:
        """Raise ConfigError, with the key of the message, unless a run may ask for examples of this form."""
        if self.dictionary is not None:
            self.dictionary.check(spec, numbered=self.path.suffix.lower() == ARRAYS)

    def plain(self) -> dict[str, Any]:
        """As values for JSON, with the key."""
        secret = self.secret and str(self.secret)
        said = {"path": str(self.path), "id": self.id, "key": self.key and self.key.hex(), "secret": secret}
        return {**said, "dictionary": self.dictionary and asdict(self.dictionary), "form": asdict(self.form)}

    @classmethod
    def of_plain(cls, values: Mapping[str, Any]) -> SiteData:
        """What `plain` made."""
        said = values["dictionary"]
        dictionary = said and Dictionary(
            {
                name: AllowedCells(**{**cells, "categories": tuple(cells["categories"])})
                for name, cells in said["columns"].items()
            },
            tuple(said["targets"]),
            said["examples"],
        )
        key = values["key"] and bytes.fromhex(values["key"])
        secret = values["secret"] and Path(values["secret"])
        form = FileForm.of_plain(values["form"])
        return cls(Path(values["path"]), key or None, values["id"], secret or None, dictionary or None, form)

    def described(self) -> str:
        """Everything on which what is read depends, with a digest in place of the key."""
        key = None if self.key is None else hashlib.sha256(self.key).digest()
        return repr(replace(self, key=key))


def read_site(given: Path) -> SiteData:
    """The site's data that this path names: its own file (`*.toml`), or the data themselves.

    A secret that is named, or to be beside the file, and does not exist is made. Raises ConfigError if the file
    cannot be read, or has another form.
    """
    if given.suffix != SUFFIX:
        return SiteData(given)
    values = _values(given)
    site = _described(given, values)
    key, secret = _key(given, values)
    return replace(site, key=key, secret=secret)


def check_secret(given: Path) -> None:
    """Raise ConfigError if the secret of a site's own file is missing: for whoever must not make another one."""
    if given.suffix != SUFFIX or "split_seed" in (values := _values(given)):
        return
    secret = _secret(given, values)
    if not secret.exists():
        raise ConfigError(
            f"the secret {secret} of the hold-out does not exist, so which rows were held out is not known: "
            "restore it from a backup"
        )


def read_form_of(given: Path) -> SiteData:
    """The same without key and secret, so none is made: for whoever holds nothing out."""
    return SiteData(given) if given.suffix != SUFFIX else _described(given, _values(given))


def _described(given: Path, values: Mapping[str, Any]) -> SiteData:
    named = values.get("path")
    if not isinstance(named, str) or not named:
        raise ConfigError(f'{given}: it must name the data, as in path = "/srv/data/patients.csv"')
    id_column = values.get("id", "")
    if not isinstance(id_column, str) or ("id" in values and not id_column):
        raise ConfigError(f"{given}: id = {id_column!r} is not allowed: it must be the name of a column")
    try:
        values = {**values, "columns": expanded(values["columns"])} if "columns" in values else values
        form = _form(values)
        dictionary = _dictionary(values)
        _check_words(form, dictionary)
    except ValueError as error:
        raise ConfigError(f"{given}: {error}") from None
    if id_column and dictionary is not None and not dictionary.columns:
        raise ConfigError(f"{given}: id = {id_column!r} is not allowed: only a table has columns")
    path = (given.parent / Path(named).expanduser()).absolute()
    kind_fault = "" if dictionary is None else _kind_fault(path, dictionary, form)
    fault = _form_fault(path, values, form) or kind_fault
    if fault:
        raise ConfigError(f"{given}: {fault}")
    return SiteData(path, id=id_column, dictionary=dictionary, form=form)


def _values(path: Path) -> dict[str, Any]:
    values = read_toml(path, "the data file", KEYS)
    return {key: value if key in PATHS else _composed(value) for key, value in values.items()}


def _composed(value: Any) -> Any:
    """The same with all texts `composed`, as those of a table are."""
    if isinstance(value, dict):
        return {composed(key): _composed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_composed(item) for item in value]
    return composed(value) if isinstance(value, str) else value


def _dictionary(values: Mapping[str, Any]) -> Dictionary | None:
    if "columns" in values and "examples" in values:
        raise ValueError("[columns] and [examples] exclude each other: a table has columns")
    if "columns" in values:
        columns = values["columns"]
        plain = (
            {name: without_form(column) for name, column in columns.items()}
            if isinstance(columns, dict)
            else columns
        )
        return read_columns(plain, values.get("targets"))
    if "targets" in values:
        raise ValueError("targets needs [columns]")
    return read_examples(values["examples"]) if "examples" in values else None


def _form(values: Mapping[str, Any]) -> FileForm:
    columns = values.get("columns")
    return read_form(values.get("file"), columns if isinstance(columns, dict) else {})


def _check_words(form: FileForm, dictionary: Dictionary | None) -> None:
    """Raise ValueError if a word of a column of numbers stands for something else than a number."""
    for name, cells in ({} if dictionary is None else dictionary.columns).items():
        for word, number in form.of(name).words if cells.kind == NUMBER else ():
            if number.strip() and not _NUMBER.fullmatch(number.strip()):
                raise ValueError(
                    f"column {name!r}: words: {word!r} = {number!r} is not allowed: it must be a number in the "
                    'task\'s unit, with a decimal point whatever the file has, as in words = { "<5" = "2.5" }; '
                    "for no value, name the word in missing"
                )


def _is_table(path: Path, form: FileForm) -> bool:
    return form.is_csv or path.name.lower().endswith(TABLES)


def _form_fault(path: Path, values: Mapping[str, Any], form: FileForm) -> str:
    """Why [file] says what cannot be said of a file with this name; empty if it can."""
    if "file" not in values:
        return ""
    if not _is_table(path, form):
        return (
            f"[file] is about a table ({', '.join(TABLES)}), and {path.name} is none; if it is text with "
            'separators, write format = "csv"'
        )
    is_text = form.is_csv or path.name.lower().endswith(COMMA_SEPARATED)
    key = None if is_text else next((key for key in OF_TEXT if key in values["file"]), None)
    return "" if key is None else f"[file]: {key} is about text, and {path.name} is none: remove it"


def _kind_fault(path: Path, dictionary: Dictionary, form: FileForm) -> str:
    """Why data at this path cannot be what the file says; empty if they can."""
    if _is_table(path, form) != bool(dictionary.columns):
        is_text = ' (of a table that is text with separators, write format = "csv" in [file])'
        return f"a table has [columns], and what is no table has [examples]{is_text if dictionary.columns else ''}"
    if dictionary.examples.get("kind") in FOLDERS and path.suffix.lower() == ARRAYS:
        return f"kind = {dictionary.examples['kind']!r} is of folders; say the kind of the arrays in {path.name}"
    return ""


def _key(path: Path, values: Mapping[str, Any]) -> tuple[bytes, Path | None]:
    """The key of the hold-out, and the file that has it; None if it comes from a seed."""
    if "split_seed" in values:
        seed = values["split_seed"]
        if type(seed) is not int or seed < 0 or "secret" in values:
            raise ConfigError(
                f"{path}: split_seed = {seed!r} is not allowed: it must be a whole number of at least 0, without "
                "secret"
            )
        return key_of(seed), None
    secret = _secret(path, values)
    try:
        return _read_or_made(secret), secret
    except OSError as error:
        raise ConfigError(
            f"the secret {secret} of the hold-out cannot be read or made: {error.strerror or error}; make it "
            f"yourself, readable by this user only: head -c {KEY_BYTES} /dev/urandom > {secret}"
        ) from error


def _secret(path: Path, values: Mapping[str, Any]) -> Path:
    named = values.get("secret", path.with_suffix(".secret").name)
    if not isinstance(named, str) or not named:
        raise ConfigError(f"{path}: secret = {named!r} is not allowed: it must be the path of a file")
    return (path.parent / Path(named).expanduser()).absolute()


def _read_or_made(path: Path) -> bytes:
    """The secret in this file, which is made if it does not exist."""
    try:
        atomic.create(path, made := secrets.token_bytes(KEY_BYTES), mode=0o600, durable=True)
    except FileExistsError:
        secret = path.read_bytes()
        if len(secret) < KEY_BYTES:
            raise ConfigError(
                f"the secret {path} has {len(secret)} bytes; it must have at least {KEY_BYTES} random ones"
            ) from None
        return secret[:KEY_BYTES]
    return made
