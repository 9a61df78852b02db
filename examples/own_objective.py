"""A user-defined objective: label smoothing, as a term that is added to the cross-entropy.

fedstride run parts=examples/own_objective.py objective=smoothed objective.epsilon=0.2
"""

from dataclasses import dataclass
from typing import Annotated

from fedstride import Method, Plan, Setting, part


@part(objective="smoothed", losses=["cross_entropy"])
@dataclass
class Smoothed(Method):
    """Cross-entropy with smoothed labels (Szegedy et al., CVPR 2016)."""

    epsilon: Annotated[float, Setting("share of a label that is spread over all classes", least=0, below=1)] = 0.1

    def begin(self, job, received, state):
        """CE with smoothed labels = CE + epsilon (CE with uniform labels - CE); the second term is added here."""

        def term(model, x, y, logits):
            log_p = logits.log_softmax(1)
            return self.epsilon * (log_p.gather(1, y[:, None]).squeeze(1) - log_p.mean(1)).mean()

        return Plan(loss_terms=(term,))
