"""What rules and wrappers have in common: the replies of a round are screened, and lengths are learnt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from flwr.app import Message

from fedstride.arrays import Arrays

from .cohort import Accepted, Cohort, Expected
from .limits import Screening
from .reporting import report, report_figures
from .screening import screen, screen_metrics


class Screened:
    """The part of a strategy that screens replies.

    `last_cohort` and `last_evaluation` are the replies to the last training and the last evaluation; the former is
    None while the next training is under way. `learnt` is what the screening knows of lengths (`lengths.py`), a
    part of the strategy's state.
    """

    screening: Screening

    names: Mapping[int, str] = MappingProxyType({})
    """The names of clients and nodes in the log, by client id and by node id. Others are named by their id."""

    @property
    def summed_by(self) -> str | None:
        """The weighting of the mean update that the rule uses (`mean_update`, `movement`); None if it uses none.

        The mean is then computed while the replies are screened, which saves reading them twice. The result does
        not depend on this.
        """
        return None

    def forget_rounds(self) -> None:
        """Begin a new run: nothing is learnt, and everything is logged again."""
        self.last_cohort: Cohort | None = None
        self.last_evaluation: Cohort | None = None
        self.learnt: Mapping[str, float] = {}
        self._warned: set[str] = set()

    def screened(
        self, server_round: int, replies: Iterable[Message], sent: Arrays, count_key: str, expected: Expected
    ) -> Cohort:
        """The valid replies to a training; logs the others. A strategy outside may have screened them already."""
        cohort = screen(
            replies,
            sent,
            weighted_by_key=count_key,
            screening=self.screening,
            expected=expected,
            learnt=self.learnt,
            summed_by=self.summed_by,
        )
        if not isinstance(replies, Accepted):
            self.learnt = cohort.learnt
            report(server_round, cohort, self._warned, self.names)
        self.last_cohort = cohort
        return cohort

    def screened_metrics(self, server_round: int, replies: Iterable[Message], count_key: str) -> Cohort:
        """The same for the replies to an evaluation."""
        cohort = screen_metrics(replies, count_key, self.last_cohort, self.screening.max_share)
        if not isinstance(replies, Accepted):
            report_figures(server_round, cohort, self._warned, self.names)
        self.last_evaluation = cohort
        return cohort
