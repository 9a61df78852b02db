"""What a reader has found in the files of a site."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..evaluation.holdout import digests_of
from ..statistics.example_digests import digest_of_set


@dataclass(frozen=True)
class ReaderResult:
    """The examples: x and y in the stored form, and two digests of each example, uint8 (n, 16).

    `rows` decides what is held out: equal for examples that must stay together. `contents`: of all that an example
    has in the files.
    """

    x: np.ndarray
    y: np.ndarray
    rows: np.ndarray
    contents: np.ndarray

    @property
    def has_ids(self) -> bool:
        """Whether rows with one id stay together: `rows` are then digests of ids."""
        return not np.array_equal(self.rows, self.contents)

    def content(self) -> bytes:
        """A digest of all examples, 32 bytes, which another order of the same examples does not change.

        Without ids, what is held out depends on all that the files have of an example, so all of that counts; with
        ids, what is read, and the ids.
        """
        digests = digests_of(self.x if self.has_ids else self.contents, self.y)
        return digest_of_set(np.concatenate([digests, self.rows], axis=1))
