"""A signed run: what a submitter asks of nodes, exactly, and for how long.

What is signed (Ed25519) are these bytes: the domain word `fedstride-run-v1` and a zero byte, then canonical JSON
(keys in order, no blanks, ASCII). It travels as one line in a run's configuration: format, id of the key,
signature, and the JSON, with a blank between each.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any, NamedTuple

from ..errors import ConfigError
from ..settings import MOST_ROUNDS
from .varying_values import Varies

DOMAIN = b"fedstride-run-v1\0"
FORMAT = "fedstride-run-1"

RUN_CONFIG = "signed_run"
"""The key of a run's configuration that has a signed run."""

MOST_CHARACTERS = 2**20
MOST_DAYS = 30
DAY = 86400
FUTURE_SECONDS = 300
"""How far the clock of a submitter may be ahead of a node's."""

MOST_NODES, MOST_FORMS = 100_000, 20

Value = bool | int | float | str | list[Any]

_HASH, _WORD = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{16}")
_KEY, _SIGNATURE = re.compile(r"fpk_[0-9a-f]{32}"), re.compile(r"[A-Za-z0-9_-]{86}==")
_NONCE, _PRINT = re.compile(r"[0-9a-f]{32}"), re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


class UnlikeError(Exception):
    """A message is not one of those that were signed. The text, one line, has names of keys and records."""


@dataclass(frozen=True)
class MessageForm:
    """One form of the messages of a run.

    `fixed`: values of its config. `varies`: the other ones. `records`: the digest (`form_of_arrays`) of each
    record of arrays, by name; those named in `optional` may be missing.
    """

    name: str
    kind: str  # train, evaluate, query
    fixed: Mapping[str, Value]
    varies: Mapping[str, Varies]
    records: Mapping[str, str]
    optional: tuple[str, ...] = ()

    def differences(self, asked: MessageContent) -> list[str]:
        """How a message of this kind differs from this form; empty if it does not."""
        config = asked.config
        allowed = {*self.fixed, *self.varies}
        differences = [f"it has the key {key!r}" for key in sorted(config.keys() - allowed)]
        needed = {*self.fixed, *(key for key, varies in self.varies.items() if not varies.optional)}
        differences += [f"it has no {key!r}" for key in sorted(needed - config.keys())]
        differences += [
            f"another {key!r}" for key in self.fixed if key in config and not same(config[key], self.fixed[key])
        ]
        differences += [
            f"{key!r} is not {varies}"
            for key, varies in self.varies.items()
            if key in config and not varies.allows(config[key])
        ]
        differences += [
            f"it has the record {name!r}" for name in sorted(asked.records.keys() - self.records.keys())
        ]
        missing = self.records.keys() - asked.records.keys() - set(self.optional)
        differences += [f"it has no record {name!r}" for name in sorted(missing)]
        both = sorted(asked.records.keys() & self.records.keys())
        return differences + [
            f"other arrays in {name!r}" for name in both if asked.records[name] != self.records[name]
        ]


class MessageContent(NamedTuple):
    """What a message says: its kind, the values of its config, and the digest of each of its records of arrays."""

    kind: str
    config: Mapping[str, Any]
    records: Mapping[str, str]


@dataclass(frozen=True)
class Terms:
    """What is signed."""

    app: str  # SHA-256 of the bundle
    run_config: Mapping[str, str]  # the run's configuration, without this signature
    run: str  # the word of the run, which names the folder of what clients keep
    resumes: bool  # whether the run goes on with what clients keep under this word
    rounds: int
    messages: int  # the most that a node answers, repeats not counted
    forms: tuple[MessageForm, ...]  # of its messages
    nodes: tuple[str, ...]  # fingerprints of their public keys; empty: every node that trusts the key
    nonce: str
    signed_at: int  # seconds since 1970
    expires: int

    def form_of(self, asked: MessageContent) -> MessageForm:
        """The form of this message. Raises UnlikeError if none was signed."""
        forms = [form for form in self.forms if form.kind == asked.kind]
        if not forms:
            raise UnlikeError(f"no message of the kind {asked.kind!r}")
        differences = sorted(((form.differences(asked), form) for form in forms), key=lambda pair: len(pair[0]))
        fewest, form = differences[0]
        if fewest:
            more = f" and {len(fewest) - 1} more" if len(fewest) > 1 else ""
            raise UnlikeError(f"unlike the signed {form.name!r}: {fewest[0]}{more}")
        return form

    def fault(self, now: float) -> str:
        """Why these terms do not hold at this time; empty if they do."""
        if self.signed_at > now + FUTURE_SECONDS:
            return "it is signed in the future; check the clocks"
        return "" if now < self.expires else "it has expired"

    def body(self) -> str:
        """As canonical JSON."""
        return canonical(
            {field.name: getattr(self, field.name) for field in fields(self)}
            | {"forms": _plain_forms(self.forms), "nodes": list(self.nodes)}
        )


class SignedTerms(NamedTuple):
    """Terms with a signature that is still to be verified, over `to_sign(body)`."""

    terms: Terms
    key: str  # the id of the public key, see `app_signatures.key_id`
    signature: str  # base64 (URL-safe) of 64 bytes
    body: str

    def dump(self) -> str:
        """As one line."""
        return f"{FORMAT} {self.key} {self.signature} {self.body}"


def to_sign(body: str) -> bytes:
    """The bytes that are signed."""
    return DOMAIN + body.encode("ascii")


def load(text: object) -> SignedTerms:
    """The signed run in this text. Raises ConfigError if it is none, or of another version."""
    parts = text.split(" ", 3) if isinstance(text, str) and len(text) <= MOST_CHARACTERS else []
    if len(parts) != 4 or parts[0] != FORMAT or not text.isascii():  # type: ignore[attr-defined]
        raise ConfigError(f"it is not a signed run of the format {FORMAT}; use the same version of fedstride")
    _, key, signature, body = parts
    if not _KEY.fullmatch(key) or not _SIGNATURE.fullmatch(signature):
        raise ConfigError("the signature of the run has another form; sign it with fedstride submit --key")
    return SignedTerms(parse_body(body), key, signature, body)


def parse_body(body: str) -> Terms:
    """What this canonical JSON says. Raises ConfigError for any other text."""
    try:
        terms = _terms(json.loads(body, object_pairs_hook=_once, parse_constant=_no_number))
        if terms.body() != body:
            raise ValueError("it is not written in the one way in which it is signed")
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"the signed run has another form: {reason}; use the same version of fedstride"
        ) from None
    return terms


def canonical(value: Any) -> str:
    """The one JSON text of this value. Raises ValueError for numbers that JSON does not have."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=dict)


def form_of_arrays(arrays: Iterable[tuple[str, str, Iterable[int]]]) -> str:
    """A digest of the names, dtypes and shapes of arrays."""
    listed = sorted([name, dtype, list(shape)] for name, dtype, shape in arrays)
    return sha256(json.dumps(listed).encode()).hexdigest()


def same(one: Any, other: Any) -> bool:
    """Whether two values of a config are the same, also in type: 1, 1.0 and True are not."""
    return type(one) is type(other) and repr(one) == repr(other)


def _plain_forms(forms: Iterable[MessageForm]) -> dict[str, Any]:
    """The forms, with what all of them say written once."""
    listed = list(forms)
    common = {
        key: value
        for key, value in listed[0].fixed.items()
        if all(key in form.fixed and same(form.fixed[key], value) for form in listed)
    }
    plain_forms = [
        {
            "name": form.name,
            "kind": form.kind,
            "fixed": {key: value for key, value in form.fixed.items() if key not in common},
            "varies": {key: varies.plain() for key, varies in form.varies.items()},
            "records": dict(form.records),
            "optional": sorted(form.optional),
        }
        for form in listed
    ]
    return {"all": common, "each": plain_forms}


def _terms(values: Any) -> Terms:
    """Raises ValueError, TypeError or KeyError for values of another form."""
    names = {field.name for field in fields(Terms)}
    _require(isinstance(values, dict) and values.keys() == names, "other keys")
    terms = Terms(**values | {"forms": _forms(values["forms"]), "nodes": tuple(values["nodes"])})
    _require(_is(terms.app, _HASH) and _is(terms.run, _WORD) and _is(terms.nonce, _NONCE), "app, run or nonce")
    texts = isinstance(terms.run_config, dict) and all(
        isinstance(value, str) for value in terms.run_config.values()
    )
    _require(texts and type(terms.resumes) is bool, "run_config or resumes")
    _require(len(terms.nodes) <= MOST_NODES and all(_is(node, _PRINT) for node in terms.nodes), "nodes")
    numbers = terms.rounds, terms.messages, terms.signed_at, terms.expires
    _require(all(type(number) is int and 0 <= number < 2**62 for number in numbers), "a number")
    _require(0 <= terms.rounds <= MOST_ROUNDS, "rounds")
    _require(0 < terms.expires - terms.signed_at <= MOST_DAYS * DAY, f"valid for more than {MOST_DAYS} days")
    return terms


def _forms(values: Any) -> tuple[MessageForm, ...]:
    _require(values.keys() == {"all", "each"} and 0 < len(values["each"]) <= MOST_FORMS, "forms")
    forms = []
    for plain in values["each"]:
        _require(plain.keys() == {"name", "kind", "fixed", "varies", "records", "optional"}, "a form")
        fixed, varies = values["all"] | plain["fixed"], {key: Varies.of(it) for key, it in plain["varies"].items()}
        _require(all(map(is_value, fixed.values())) and not fixed.keys() & varies.keys(), "values of a form")
        texts = plain["name"], plain["kind"], *plain["records"].values(), *plain["optional"]
        _require(all(isinstance(text, str) for text in texts), "names of a form")
        _require(all(name in plain["records"] for name in plain["optional"]), "records of a form")
        forms.append(
            MessageForm(plain["name"], plain["kind"], fixed, varies, plain["records"], tuple(plain["optional"]))
        )
    _require(len({form.name for form in forms}) == len(forms), "two forms of one name")
    return tuple(forms)


def is_value(value: Any) -> bool:
    """Whether a value of a config can be signed: a number that is finite, a text, a bool, or a list of them."""
    values = value if isinstance(value, list) else [value]
    return all(type(one) in (bool, int, str) or (type(one) is float and math.isfinite(one)) for one in values)


def _is(value: Any, form: re.Pattern[str]) -> bool:
    return isinstance(value, str) and form.fullmatch(value) is not None


def _require(holds: object, what: str) -> None:
    if not holds:
        raise ValueError(what)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _require(len(dict(pairs)) == len(pairs), "a key twice")
    return dict(pairs)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")
