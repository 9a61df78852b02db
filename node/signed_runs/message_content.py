"""What a message says, read from its objects, with nothing joined: for the comparison with what was signed.

It reads what the process of the message will see, and nothing else belongs to the message.
"""

from __future__ import annotations

from collections.abc import Mapping

from flwr.app import ConfigRecord

from fedstride.flower.for_superlinks.object_form import (
    CHUNK,
    array_form,
    body_of,
    head_of,
    message_kind,
    plain_record,
    references,
)
from fedstride.messages import packed_arrays, wire
from fedstride.messages.signed_runs import MessageContent, form_of_arrays

from ..messages.replies import MOST_HEAD, MOST_PLAIN

MOST_ARRAYS = 20_000


def asked(message_id: str, contents: Mapping[str, bytes]) -> MessageContent:
    """What this message says. Raises ValueError, with one line, for another form than that of a run's messages."""
    try:
        return _Reading(contents).of(message_id)
    except ValueError:
        raise
    except Exception as error:  # what a SuperLink has sent may be anything
        raise ValueError(f"a part of the message cannot be read ({type(error).__name__})") from None


class _Reading:
    """The reading of one message. `seen`: the objects that belong to it."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self._contents = contents
        self._seen: set[str] = set()

    def of(self, message_id: str) -> MessageContent:
        content = self._part(message_id, "Message")
        children = head_of(content, MOST_PLAIN)[1]
        if len(children) != 1:
            raise ValueError("a message without a content")
        config: ConfigRecord | None = None
        records = {}
        for name, record_id in references(self._part(children[0], "RecordDict"), MOST_PLAIN).items():
            kind = head_of(self._content(record_id), MOST_HEAD)[0]
            if kind == "ArrayRecord":
                records[name] = self._arrays(record_id)
            elif kind == "ConfigRecord" and name == wire.CONFIG:
                config = self._config(record_id)
            else:
                raise ValueError(f"it has the record {name[:60]!r} of the kind {kind}")
        if config is None:
            raise ValueError(f"it has no record {wire.CONFIG!r}")
        if self._seen != self._contents.keys():
            raise ValueError("it has parts that do not belong to it")
        return MessageContent(message_kind(content, MOST_PLAIN), dict(config), records)

    def _content(self, object_id: str) -> bytes:
        if object_id not in self._contents:
            raise ValueError("a part of it is missing")
        self._seen.add(object_id)
        return self._contents[object_id]

    def _part(self, object_id: str, kind: str) -> bytes:
        content = self._content(object_id)
        if head_of(content, MOST_HEAD)[0] != kind:
            raise ValueError(f"a part of it is no {kind}")
        return content

    def _config(self, object_id: str) -> ConfigRecord:
        content = self._content(object_id)
        if len(content) > MOST_PLAIN:
            raise ValueError(f"its config has more than {MOST_PLAIN} bytes")
        config: ConfigRecord = plain_record(content, MOST_HEAD)
        return config

    def _arrays(self, object_id: str) -> str:
        """The digest of the names, dtypes and shapes of a record's arrays, packed or not."""
        forms = []
        arrays = references(self._part(object_id, "ArrayRecord"), MOST_HEAD)
        for name, array_id in arrays.items():
            dtype, shape, stored, chunks = array_form(self._part(array_id, "Array"), MOST_HEAD)
            for chunk in chunks:
                self._part(chunk, CHUNK)
            if stored == packed_arrays.PACKED:
                if list(arrays) != [packed_arrays.PACKED]:
                    raise ValueError("a packed array that is not alone")
                described = packed_arrays.description(self._beginning(chunks), MOST_ARRAYS)
                return form_of_arrays((one[0], one[1], one[2]) for one in described)
            forms.append((name, dtype, shape))
        return form_of_arrays(forms)

    def _beginning(self, chunks: list[str]) -> memoryview:
        """The bytes in which a packed array describes itself."""
        beginning = bytearray()
        for chunk in chunks:
            beginning += body_of(self._contents[chunk], MOST_HEAD)[: MOST_HEAD + 8]
            if len(beginning) >= 8 and len(beginning) >= packed_arrays.described_bytes(memoryview(beginning)):
                return memoryview(beginning)
            if len(beginning) > MOST_HEAD:
                break
        raise ValueError("a packed array that does not describe itself")
