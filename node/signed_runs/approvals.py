"""Approvals of signed runs by a person at the node: what waits, what was approved, and what a run asks, in words.

    node-approvals/<id>.waits      a run that has asked, made by the node
    node-approvals/<id>.approved   made by `fedstride node-approve`

The id is the beginning of a digest of what is signed, of the policy and the data file as the node has read them at
its start, and of the state of the data: when one of them changes, the run waits again. Texts of a submitter are
shown so that no character of them does anything.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from flwr.app import MessageType

from fedstride.errors import ConfigError, FedstrideError
from fedstride.files import private_files
from fedstride.messages import wire
from fedstride.messages.signed_runs import MOST_CHARACTERS, MessageForm, SignedTerms, Terms, parse_body, to_sign
from fedstride.messages.varying_values import Varies
from fedstride.plain_numbers import is_number

from ..processes.site_rows import state_of
from .signers import AllowedSigner

DIGITS = 16
MOST_WAITING = 100
"""Runs that wait; the one that asked first goes first."""

MOST_BYTES = 4 * MOST_CHARACTERS
MOST_SHOWN = 300
"""Characters of a name."""

MOST_LINE = 76
"""Characters of a line of a value, so that a narrow terminal does not divide it."""

GOES_ON = "  ... "
"""The start of each line that continues a value."""

WAITS, APPROVED = ".waits", ".approved"

NAMED = ("task.name", "reading.columns", "reading.targets", "task.metrics", wire.HOLDOUT, wire.PRIVACY)
"""Settings that are shown first."""

Said = tuple[str, str]
"""A value, or its type and range, in words; and the forms of messages that say it, empty if all do."""


class ApprovalBasis(NamedTuple):
    """What an approval depends on besides what is signed."""

    terms: bytes  # the texts of the policy and of the data file, as this node has read them
    data: tuple[Path, ...]  # the site's data

    def digest(self) -> str:
        """A digest that changes with the terms, and with the state of the data."""
        return sha256(self.terms + "".join(map(state_of, self.data)).encode()).hexdigest()


class Asking(NamedTuple):
    """A run that waits, or was approved."""

    signer: str
    key: str
    body: str
    site: str

    @property
    def digest(self) -> str:
        """What an approval is bound to."""
        return sha256(to_sign(self.body) + self.site.encode()).hexdigest()

    @property
    def id(self) -> str:
        """The beginning of the digest, by which a person names it."""
        return self.digest[:DIGITS]

    @property
    def terms(self) -> Terms:
        """What is signed. Raises ConfigError if it is damaged."""
        return parse_body(self.body)


class Approvals:
    """The approvals in a folder."""

    def __init__(self, folder: Path, site: ApprovalBasis) -> None:
        self._folder, self._site = folder, site

    def waits(self, signer: AllowedSigner, signed: SignedTerms) -> str:
        """Why a run waits; empty if it is approved. Raises OSError if that it waits cannot be written."""
        asking = Asking(signer.name, signer.id, signed.body, self._site.digest())
        if _read(self._folder / f"{asking.id}{APPROVED}") == asking:
            return ""
        path = self._folder / f"{asking.id}{WAITS}"
        if _read(path) != asking:
            _write(path, asking)
            waiting = sorted(self._folder.glob(f"*{WAITS}"), key=lambda file: file.lstat().st_mtime)
            for old in waiting[:-MOST_WAITING]:
                old.unlink(missing_ok=True)
        return f"it waits until somebody here says: fedstride node-approve {asking.id}"


def waiting(folder: Path) -> list[Asking]:
    """The runs that wait, the one that asked first at the beginning."""
    askings = [_read(path) for path in sorted(folder.glob(f"*{WAITS}"), key=lambda file: file.lstat().st_mtime)]
    return [
        asking for asking in askings if asking is not None and not (folder / f"{asking.id}{APPROVED}").exists()
    ]


def find(folder: Path, number: str) -> Asking:
    """The run that waits under this id. Raises ConfigError if there is none."""
    asking = next((candidate for candidate in waiting(folder) if candidate.id == number), None)
    if asking is None:
        raise ConfigError(
            f"no run waits for the approval {number[:40]!r}; fedstride node-approve lists those that do"
        )
    return asking


def approve(folder: Path, asking: Asking) -> None:
    """Approve a run. Raises ConfigError if that cannot be written."""
    try:
        _write(folder / f"{asking.id}{APPROVED}", asking)
        (folder / f"{asking.id}{WAITS}").unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"the approval cannot be written in {folder}: {error.strerror or error}") from error


def of_run(folder: Path, word: str) -> list[Path]:
    """The files of the runs with this word, those that wait and those that were approved."""
    paths = [path for suffix in (WAITS, APPROVED) for path in sorted(folder.glob(f"*{suffix}"))]
    return [path for path in paths if (asking := _read(path)) is not None and asking.terms.run == word]


def in_words(folder: Path, asking: Asking, date: Callable[[float], str] | None = None) -> Iterator[str]:
    """Lines for a person who decides about a run."""
    say = date or (lambda moment: time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment)))
    terms, before = asking.terms, _last_approved(folder, asking)
    settings = _settings(terms)
    yield f"approval   {asking.id}"
    yield f"signer     {asking.signer!r}, key {asking.key}"
    yield f"who asks   {_shown(terms.run_config.get(wire.SUBMISSION, ''))}, as the submitter says"
    yield f"app        {terms.app}{_compared(terms, before)}"
    if any(wire.DESCRIPTION in {*form.fixed, *form.varies} for form in terms.forms):
        alone = len(terms.forms) == 1
        yield f"asks       what the data are like, column by column{'; nothing is trained' * alone}"
    yield f"rounds     {terms.rounds}, at most {terms.messages} messages" + (
        ", goes on with an earlier run" * terms.resumes
    )
    yield f"nodes      {_nodes(terms, settings)}"
    yield f"expires    {say(terms.expires)}"
    yield f"noise      {_noise(terms)}"
    more = sorted({name for form in terms.forms for name in form.records} - {wire.ARRAYS})
    yield f"records    {_shown(more)} besides the model" if more else "records    the model alone"
    for key in (*NAMED, *sorted(settings.keys() - set(NAMED))):
        for said in settings.get(key, ()):
            yield from _whole(f"  {_shown(key)} = {_with_forms(said)}")
    if before is not None:
        old = _settings(before)
        for key in sorted(settings.keys() | old.keys()):
            if settings.get(key) != old.get(key):
                yield f"  changed: {_shown(key)} was {'; '.join(map(_in_one, old.get(key, ()))) or 'not there'}"


def _settings(terms: Terms) -> dict[str, list[Said]]:
    """All that the forms of the run's messages say of each key."""
    by_key: dict[str, dict[str, list[MessageForm]]] = {}
    for form in terms.forms:
        texts = {key: ascii(value) for key, value in form.fixed.items()}
        texts |= {key: _varying(varies) for key, varies in form.varies.items()}
        for key, text in texts.items():
            by_key.setdefault(key, {}).setdefault(text, []).append(form)
    return {
        key: [(text, "" if len(forms) == len(terms.forms) else _named(forms)) for text, forms in said.items()]
        for key, said in by_key.items()
    }


def _varying(varies: Varies) -> str:
    more = ", or missing" * varies.optional, ", always the first one" * varies.once, ", never lower" * varies.rises
    return f"varies: {varies}{''.join(more)}"


def _named(forms: list[MessageForm]) -> str:
    """Forms by kind and name. The name is any text of the signer; the kind says what a node does."""
    return "; ".join(f"{_shown(form.kind)} as {_shown(form.name)}" for form in forms)


def _in_one(said: Said) -> str:
    return _cut(_with_forms(said))


def _with_forms(said: Said) -> str:
    text, forms = said
    return f"{text}, in {forms}" if forms else text


def _whole(text: str) -> Iterator[str]:
    """Lines with all of a text: nobody approves what was cut off. Each line but the first starts with GOES_ON."""
    yield text[:MOST_LINE]
    more = MOST_LINE - len(GOES_ON)
    for start in range(MOST_LINE, len(text), more):
        yield f"{GOES_ON}{text[start : start + more]}"


def _compared(terms: Terms, before: Terms | None) -> str:
    if before is None:
        return ", no run of this signer was approved before"
    return (
        ", the one that was approved last"
        if before.app == terms.app
        else f", another than approved last: {before.app}"
    )


def _nodes(terms: Terms, settings: dict[str, list[Said]]) -> str:
    if terms.nodes:
        return f"{len(terms.nodes)} that are named by their keys"
    count = "; ".join(map(_in_one, settings.get(wire.NUM_CLIENTS, ()))) or "an unknown number of"
    return f"all that trust this key; {count} clients, as the server says"


def _noise(terms: Terms) -> str:
    """What protects an update at least, whichever of the forms asks for it."""
    forms = [form for form in terms.forms if form.kind.partition(".")[0] == MessageType.TRAIN]
    if not forms:
        return "none, as the run does not train"
    noise = min(_limits(form, wire.NOISE_MULTIPLIER)[0] for form in forms)
    norm = max(_limits(form, wire.CLIPPING_NORM)[1] for form in forms)
    clipping = f"{wire.CLIPPING_NORM} at most {_shown(norm)}" if norm < math.inf else "no clipping"
    if noise <= 0:
        return f"none by the nodes, {clipping}"
    seeded = any(wire.NOISE_SEED in {*form.fixed, *form.varies} for form in forms)
    known = f"; {wire.NOISE_SEED} lets the submitter compute it" if seeded else ""
    return f"{wire.NOISE_MULTIPLIER} at least {_shown(noise)}, {clipping}{known}"


def _limits(form: MessageForm, key: str) -> tuple[float, float]:
    """The least and the largest number that messages of this form have; 0 and infinite if they may have none."""
    value, varies = form.fixed.get(key), form.varies.get(key)
    if varies is not None and varies.most_values is None and not varies.optional:
        return varies.least, varies.most
    if is_number(value):
        return value, value
    return 0.0, math.inf


def _shown(value: object) -> str:
    return _cut(ascii(value))


def _cut(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}... ({len(text)} characters)"


def _last_approved(folder: Path, asking: Asking) -> Terms | None:
    """The terms that were approved last for this signer."""
    for path in sorted(folder.glob(f"*{APPROVED}"), key=lambda file: file.lstat().st_mtime, reverse=True):
        approved = _read(path)
        if approved is not None and approved.key == asking.key:
            return approved.terms
    return None


def _read(path: Path) -> Asking | None:
    """What a file says; None if it is missing, is not the node's own, or belongs to another id."""
    try:
        values = json.loads(private_files.kept(path, MOST_BYTES))
        asking = Asking(**values)
        valid = all(isinstance(value, str) for value in asking) and path.stem == asking.id and bool(asking.terms)
    except (OSError, ValueError, TypeError, RecursionError, FedstrideError):
        return None
    return asking if valid else None


def _write(path: Path, asking: Asking) -> None:
    private_files.keep(path, json.dumps(asking._asdict()).encode())
