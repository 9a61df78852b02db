"""The ledger of signed runs: one signed submission starts one run, and each of its messages is answered once.

    node-ledger.jsonl            one line for what is asked for the first time, on the disk before it is answered
    node-replies/<nonce>/<form>  the last reply to messages of each form, for a message that comes again

A signed submission is kept until a day after it has expired; then its time alone refuses it. The key to which the
word of a run belongs is kept for ever: under this word the node has what its client keeps.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fedstride.errors import ConfigError
from fedstride.files import private_files
from fedstride.messages import wire
from fedstride.messages.signed_runs import DAY, MessageForm, Terms, same

from ..processes.frames import Answer
from .signers import AllowedSigner

MOST_BYTES = 2**30
"""Of the ledger."""


class ReplayError(Exception):
    """It was asked before, or does not follow what was asked. The text is one line, for the node's own log."""


class Question(NamedTuple):
    """What a message of a signed run asks."""

    signer: AllowedSigner
    app: str  # its id
    terms: Terms
    form: MessageForm
    round: int  # 0: of none
    config: Mapping[str, Any]
    kept: Answer | None = None  # to the same question before

    @property
    def owner(self) -> tuple[str, str, str]:
        """Whose the state of the client is: the word of the run, the app and who signed the run."""
        return self.terms.run, self.app, self.signer.id


@dataclass
class _Known:
    """A signed submission that has been seen."""

    word: str
    run: int
    expires: int
    asked: set[tuple[str, int]] = field(default_factory=set)
    seen: dict[str, Any] = field(default_factory=dict)  # the last value of each key that rises, or is said once


class Ledger:
    """The ledger in `path`, and replies in `replies`, of at most `most_bytes` together (None: not limited).

    `now`: seconds since 1970. Raises ConfigError if the ledger cannot be read or is damaged.
    """

    def __init__(self, path: Path, replies: Path, most_bytes: int | None, now: float) -> None:
        self._path, self._replies, self._most = path, replies, most_bytes
        self._known: dict[str, _Known] = {}  # by nonce
        self._words: dict[str, str] = {}  # the id of the key to which the word of a run belongs
        self._load(now)

    def begin(self, terms: Terms, key: str, run: int) -> None:
        """Let this run be the one of a signed submission.

        Raises ReplayError if it is another run's, or if the word of the run belongs to another key, or to an
        earlier submission without being signed as its resume. Raises OSError if it cannot be written.
        """
        known = self._known.get(terms.nonce)
        if known is not None:
            if known.run != run:
                raise ReplayError(
                    f"this signed submission has started run {known.run}, and is used again by {run}"
                )
            return
        owner = self._words.get(terms.run)
        if owner is not None and owner != key:
            raise ReplayError(f"the word {terms.run} of the run belongs to another key, {owner}")
        if owner is not None and not terms.resumes:
            raise ReplayError(f"the word {terms.run} of the run is known, and the run is not signed as its resume")
        values = {"nonce": terms.nonce, "run": run, "expires": terms.expires, "word": terms.run, "key": key}
        self._write(values)

    def ask(self, question: Question) -> bool:
        """Whether a question is asked for the first time; it is on the disk then.

        Raises ReplayError if its round or another value is lower than before, or another one than before, or if
        more is asked than was signed. Raises OSError if it cannot be written.
        """
        terms, form = question.terms, question.form
        known = self._known[terms.nonce]
        seen = {}
        for key, varies in form.varies.items():
            if key not in question.config or not (varies.rises or varies.once):
                continue
            value, before = question.config[key], known.seen.get(key)
            if before is not None and varies.rises and value < before:
                raise ReplayError(f"{key} = {value}, after {before}")
            if before is not None and varies.once and not same(value, before):
                raise ReplayError(f"{key} is another one than before")
            if before is None or not same(value, before):
                seen[key] = value
        asked = form.name, question.round
        if asked in known.asked:
            if seen:
                raise ReplayError(f"{form.name} of round {question.round} again, with other values")
            return False
        if len(known.asked) >= terms.messages:
            raise ReplayError(f"more than the {terms.messages} messages that are signed")
        self._write({"nonce": terms.nonce, "form": form.name, "round": question.round, "seen": seen})
        return True

    # ---------------------------------------------------------------- replies

    def keep(self, question: Question, answer: Answer) -> None:
        """Keep an answer for a message that asks the same again. Without room for it, it is not kept."""
        path = self._place(question)
        content = _packed(question.round, answer)
        if self._most is not None:
            self._make_room(path, self._most - len(content))
            if len(content) > self._most:
                path.unlink(missing_ok=True)
                return
        private_files.keep(path, content)

    def kept(self, question: Question) -> Answer | None:
        """The answer to this question; None if it is not kept any more."""
        try:
            kept = _unpacked(private_files.kept(self._place(question), wire.MESSAGE_BYTES))
        except (OSError, ValueError, struct.error):
            return None
        return kept[1] if kept[0] == question.round else None

    def replies_of(self, word: str) -> list[Path]:
        """The folders of replies that are kept for the runs with this word."""
        folders = [self._replies / nonce for nonce, known in self._known.items() if known.word == word]
        return [folder for folder in folders if folder.exists() or folder.is_symlink()]

    def _place(self, question: Question) -> Path:
        name = hashlib.sha256(question.form.name.encode()).hexdigest()[:16]
        return self._replies / question.terms.nonce / name

    def _make_room(self, path: Path, room: int) -> None:
        """Remove the oldest replies, but not this one, until the rest fits into this room."""
        files = [file for file in self._replies.glob("*/*") if file != path]
        files.sort(key=lambda file: file.lstat().st_mtime, reverse=True)
        for file in files:
            room -= file.lstat().st_size
            if room < 0:
                file.unlink()

    # ---------------------------------------------------------------- the file

    def _write(self, values: dict[str, Any]) -> None:
        private_files.append(self._path, _line(values))
        self._take(values)

    def _read(self) -> bytes:
        try:
            return private_files.kept(self._path, MOST_BYTES)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise self._error("read", error) from error

    def _load(self, now: float) -> None:
        """Know what the file says, and write it again without what has expired. Raises ConfigError."""
        content, lines = self._read(), list[dict[str, Any]]()
        # A last line that is not complete was not answered: the node ended while it wrote.
        for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
            try:
                lines.append(json.loads(line))
                self._take(lines[-1])
            except (ValueError, KeyError, TypeError, RecursionError):
                raise ConfigError(
                    f"the ledger {self._path} of signed runs is damaged in line {number}, so the node cannot know "
                    "what it has answered; restore it from a backup, or have all runs signed again and remove it"
                ) from None
        old = {nonce for nonce, known in self._known.items() if known.expires + DAY < now}
        self._known = {nonce: known for nonce, known in self._known.items() if nonce not in old}
        if old or not content.endswith(b"\n"):
            kept = [line for line in lines if line.get("nonce", "") in self._known]
            named = {line.get("word") for line in kept}
            words = [{"word": word, "key": key} for word, key in self._words.items() if word not in named]
            try:
                private_files.keep(self._path, b"".join(map(_line, [*words, *kept])))
            except OSError as error:
                raise self._error("written", error) from error
        for folder in self._replies.glob("*"):
            if folder.name not in self._known:
                shutil.rmtree(folder, ignore_errors=True)

    def _take(self, values: dict[str, Any]) -> None:
        """Know what a line says. Raises KeyError or TypeError for another form."""
        if "form" in values:
            known = self._known[values["nonce"]]
            known.asked.add((values["form"], int(values["round"])))
            known.seen |= values["seen"]
            return
        if "nonce" in values:
            self._known[values["nonce"]] = _Known(values["word"], int(values["run"]), int(values["expires"]))
        self._words.setdefault(values["word"], values["key"])

    def _error(self, what: str, error: OSError) -> ConfigError:
        return ConfigError(f"the ledger {self._path} of signed runs cannot be {what}: {error.strerror or error}")


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values).encode() + b"\n"


def _packed(server_round: int, answer: Answer) -> bytes:
    head = json.dumps(
        {
            "round": server_round,
            "root": answer.root,
            "error": answer.error,
            "objects": {object_id: len(content) for object_id, content in answer.objects.items()},
        }
    ).encode()
    return b"".join([struct.pack(">Q", len(head)), head, *answer.objects.values()])


def _unpacked(content: bytes) -> tuple[int, Answer]:
    """Raises ValueError or struct.error for another content."""
    end = 8 + struct.unpack(">Q", content[:8])[0]
    head = json.loads(content[8:end])
    objects = {}
    for object_id, size in head["objects"].items():
        objects[object_id] = content[end : end + size]
        end += size
    error = head["error"]
    return head["round"], Answer(head["root"], objects, None if error is None else (error[0], error[1]), b"")
