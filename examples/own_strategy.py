"""A user-defined server rule: the averaged update, shortened to at most the norm `longest`.

fedstride run parts=examples/own_strategy.py strategy=shortened strategy.longest=0.5
"""

from typing import Annotated, Any

from fedstride import RoundResult, RuleStrategy, Setting, add_step, averaged_buffers, movement, part


@part(strategy="shortened")
class Shortened(RuleStrategy):
    """The averaged update, shortened to at most a given norm."""

    def __init__(
        self, *, longest: Annotated[float, Setting("maximum norm of a step", above=0)] = 1.0, **options: Any
    ) -> None:
        super().__init__(**options)
        self.longest = longest

    def rule(self, sent, cohort, state):
        """w' = w + min(1, longest / N) delta."""
        shares = cohort.shares(self.weighting)
        move = movement(sent, cohort.models, shares)
        factor = min(1.0, self.longest / move.whole.N) if move.whole.N else 1.0
        step = {name: factor * delta for name, delta in move.update.items()}
        model = add_step(sent, step, averaged_buffers(sent, cohort.models, shares))
        return RoundResult(model, state, {"shortened/factor": factor})
