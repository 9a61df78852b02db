"""What a message may ask of this node, and what may leave it: by the site's own files, before data are read.

A message is compared with the policy and the data file, never with the rows. So a refusal says nothing of a row.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import MessageType

from fedstride.error_kinds import ErrorKind
from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.tasks.data_toml.site import SiteData
from fedstride.tasks.evaluation.holdout import folds_of, held_key
from fedstride.tasks.spec import Spec

from ..log.log_lines import RefusedError
from ..messages.replies import MOST_PLAIN, Contents, form_of
from .policy_file import Policy

METRICS, TASK, BATCH_SIZE = "task.metrics", "task.name", "client.batch_size"

MODEL_RECORDS = frozenset({wire.ARRAYS, wire.METRICS, wire.ROLL_CALL})
"""The records of a reply that every run has. All others are extra records."""

FIGURES = tuple(f"{rule}/" for rule in (wire.LOCAL, wire.AGAINST, wire.DIFFERENCE))
"""How the keys of figures of held-out rows begin: of a model, of a second one, and of their differences."""

NO_TEST = (wire.NOT_ALLOWED, wire.FEW_ROWS)
"""What a reply says in place of a membership test."""

WHO_ANSWERS = frozenset(
    {wire.NAME, wire.PACKED, wire.FROZEN, wire.CODE, "device", "python", "torch", "flwr", "fedstride"}
)
"""What a reply to the roll call says of the node and not of its data."""


class PolicyTerms:
    """Compares messages and replies with the site's own files. `now`: the local time of day, in minutes."""

    def __init__(
        self, policy: Policy, site: SiteData | None, now: Callable[[], int] = lambda: _minutes(time.localtime())
    ) -> None:
        self._policy, self._site, self._now = policy, site, now

    def check(self, message: Contents) -> None:
        """Raise RefusedError, with the key of the message, for what this node does not allow."""
        said = message.settings
        if wire.CONFIG in message.unread:
            raise RefusedError(
                f"its settings have more than {MOST_PLAIN} bytes, or another form", ErrorKind.MESSAGE
            )
        if self._policy.hours is not None and not _within(self._now(), *self._policy.hours):
            raise RefusedError("it came outside of the hours in the policy", ErrorKind.POLICY)
        if said.get(wire.DESCRIPTION) and not self._policy.description:
            raise RefusedError(
                "it asks what the data are like, column by column; description = true in the policy allows that",
                ErrorKind.POLICY,
                wire.DESCRIPTION,
            )
        if self._policy.tasks is not None and TASK not in said:
            raise RefusedError(
                "it does not say which task it learns; the policy has a list of tasks", ErrorKind.POLICY, TASK
            )
        self._check_listed(said, TASK, self._policy.tasks)
        self._check_listed(said, METRICS, self._policy.metrics)
        self._check_noise(said)
        form = form_of(said)
        if self._site is None:
            return
        if said.get(wire.MOMENTS) and self._site.is_of_any_form:
            raise RefusedError(
                "it asks for moments of examples that runs make of files, which say what single files contain",
                ErrorKind.POLICY,
                wire.MOMENTS,
            )
        if form is None:
            if not self._policy.raw_data:
                raise RefusedError(
                    "its app would read the data of this site itself: it does not say the form of an example; "
                    "raw_data = true in the policy allows that",
                    ErrorKind.POLICY,
                )
            return
        if self._site.dictionary is None:
            raise RefusedError(
                "the site's data file does not say what runs may name: it has neither [columns] nor [examples]",
                ErrorKind.POLICY,
            )
        of_table = self._site.is_table and form.get("spec.kind") == "table"
        if not (of_table and said.get(wire.DESCRIPTION)):  # which says of each column whether it is as asked
            self._check_form(self._site, form)
        self._check_share(said)
        self._check_batches(said)

    def check_rows(self, kind: str, said: Mapping[str, Any], rows: int, held: Mapping[str, int]) -> None:
        """Raise RefusedError if the rows of training, or those that the message asks to measure, are too few.

        `kind`: of the message, as Flower names it. `held`: the number of held-out rows for each share, as it is
        written.
        """
        share = said.get(wire.HOLDOUT, 0.0)
        fold = said.get(wire.FOLD, 0)
        measured = held.get(held_key(share, fold), 0)
        least = self._policy.min_rows
        if rows - measured < least:
            raise RefusedError(
                f"this node would train on {rows - measured} of {rows} rows; its policy demands at least "
                f"min_rows = {least}",
                ErrorKind.FEW_ROWS,
            )
        if share and measured < least and kind.partition(".")[0] == MessageType.EVALUATE:
            raise RefusedError(
                f"this node would measure on {measured} of {rows} rows; its policy demands at least "
                f"min_rows = {least}",
                ErrorKind.FEW_ROWS,
            )
        if fold and any(held.get(held_key(share, other), 0) < least for other in range(folds_of(share))):
            raise RefusedError(
                f"a fold of holdout = {share:g} would hold out fewer rows than min_rows = {least}, so two runs "
                "would differ by so few",
                ErrorKind.FEW_ROWS,
                wire.FOLD,
            )
        sizes = sorted(held.get(held_key(holdout, 0), 0) for holdout in self._policy.holdout)
        if any(0 < larger - smaller < least for smaller, larger in itertools.pairwise(sizes)):
            raise RefusedError(
                f"two shares of holdout in the policy hold out sets that differ by fewer than min_rows = {least} "
                "rows; allow shares that are further apart",
                ErrorKind.POLICY,
                wire.HOLDOUT,
            )

    def check_reply(self, reply: Contents) -> None:
        """Raise RefusedError if something in a reply may not leave this node."""
        if reply.unread:
            raise RefusedError(f"the reply has the record {reply.unread[0]!r}, which is too large", ErrorKind.APP)
        extra = sorted(set(reply.names) - MODEL_RECORDS)
        allowed = self._policy.records
        if allowed is not None and (other := [name for name in extra if name not in allowed]):
            raise RefusedError(
                f"the reply has the record {other[0]!r}, which records in the policy lacks", ErrorKind.POLICY
            )
        keys = [key for record in reply.records.values() for key in record]
        figures = sorted(key.partition("/")[2] for key in keys if key.startswith(FIGURES))
        if self._policy.metrics is not None:
            other = [name for name in figures if name not in (*self._policy.metrics, "loss")]
            if other:
                raise RefusedError(
                    f"the reply has the figure {other[0]!r}, which the policy lacks", ErrorKind.POLICY
                )
        told = sorted(key for key in keys if key.startswith(f"{wire.MEMBERSHIP}/"))
        if not self._policy.membership and (other := [key for key in told if key not in NO_TEST]):
            raise RefusedError(f"the reply has {other[0]!r}, which the policy does not allow", ErrorKind.POLICY)
        if self._policy.clipping_norm is not None and extra:
            raise RefusedError(
                f"the reply has the record {extra[0]!r}, which no clipping protects", ErrorKind.POLICY
            )
        if self._policy.noise_multiplier:
            self._check_reply_with_noise(reply)

    def _check_reply_with_noise(self, reply: Contents) -> None:
        allowed = {*wire.WITHOUT_DATA, *WHO_ANSWERS, wire.NUM_EXAMPLES}
        for record in reply.records.values():
            told = sorted(key for key in record if key not in allowed and not key.startswith(wire.done("")))
            if told:
                raise RefusedError(
                    f"the reply has the value {told[0]!r}, which no noise protects", ErrorKind.POLICY
                )
            if record.get(wire.NUM_EXAMPLES, 1) != 1:
                raise RefusedError(
                    "the reply has the number of examples, which no noise protects", ErrorKind.POLICY
                )

    def _check_form(self, site: SiteData, form: Mapping[str, Any]) -> None:
        """Compare the form of an example with the site's data file."""
        try:
            site.check(Spec.unflatten(form))
        except ConfigError as error:
            raise RefusedError(str(error), ErrorKind.SETTING, error.key) from error

    def _check_share(self, said: Mapping[str, Any]) -> None:
        share = said.get(wire.HOLDOUT, 0.0)
        if type(share) not in (int, float) or share not in self._policy.holdout:
            allowed = ", ".join(f"{holdout:g}" for holdout in self._policy.holdout)
            raise RefusedError(
                f"it asks for holdout = {str(share)[:40]}; the policy allows {allowed}",
                ErrorKind.POLICY,
                wire.HOLDOUT,
            )
        fold = said.get(wire.FOLD, 0)
        if type(fold) is not int or not 0 <= fold < folds_of(share):
            raise RefusedError(
                f"it asks for fold = {str(fold)[:40]} of a share of {share:g}", ErrorKind.POLICY, wire.FOLD
            )
        if fold and not self._policy.folds:
            raise RefusedError(
                f"it asks for fold = {fold}; folds = true in the policy allows that", ErrorKind.POLICY, wire.FOLD
            )

    def _check_batches(self, said: Mapping[str, Any]) -> None:
        size = said.get(BATCH_SIZE, self._policy.min_rows)
        if type(size) is not int or size < self._policy.min_rows:
            raise RefusedError(
                f"it asks for {BATCH_SIZE} = {str(size)[:40]}; a batch has at least min_rows = "
                f"{self._policy.min_rows} rows",
                ErrorKind.POLICY,
                BATCH_SIZE,
            )

    def _check_noise(self, said: Mapping[str, Any]) -> None:
        """Refuse what the demanded noise would not protect; the noise itself is the app's."""
        if not self._policy.noise_multiplier:
            return
        for key in (wire.MOMENTS, wire.CLASS_MOMENTS, wire.DESCRIPTION, wire.MEMBERSHIP):
            if said.get(key):
                raise RefusedError(f"it asks for {key}, which no noise protects", ErrorKind.POLICY, key)

    def _check_listed(self, said: Mapping[str, Any], key: str, allowed: tuple[Any, ...] | None) -> None:
        if allowed is None or key not in said:
            return
        value = said[key]
        other = [entry for entry in (value if isinstance(value, list) else [value]) if entry not in allowed]
        if other:
            raise RefusedError(
                f"it asks for {key} = {str(other[0])[:80]!r}; the policy allows {', '.join(map(str, allowed))}",
                ErrorKind.POLICY,
                key,
            )


def _minutes(now: time.struct_time) -> int:
    return 60 * now.tm_hour + now.tm_min


def _within(now: int, start: int, end: int) -> bool:
    """Whether a time of day is in a span, which may be over midnight. The end is not part of it."""
    return start <= now < end if start <= end else now >= start or now < end
