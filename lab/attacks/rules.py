"""The attacks: what a malicious client returns instead of its honest reply.

Delta_k = w_k - w is the update that client k computes honestly. An attacker returns w + u, with u from

    sign_flip        u = -Delta_k
    scaled           u = factor Delta_k
    alie             u = mean_j - z std_j, for each coordinate j, over the updates that are known
    ipm              u = -epsilon mean over the updates that are known
    mimic            u = Delta_i of one honest client i, the same for all attackers
    label_flip       u = Delta_k, trained with the labels C - 1 - y
    many_examples    u = Delta_k, with factor n_k as the number of examples

The mean is unweighted, and std is that of the population. What an attacker knows, beside its own data:

- `alie` (Baruch, Baruch, Goldberg, NeurIPS 2019): by default the honestly computed updates of the attackers of the
  round, as in the paper, whose attackers cannot see others. With `z=0`, z is the paper's z_max, the quantile
  (n - m - s) / (n - m) of the normal distribution with s = floor(n / 2 + 1) - m, for n clients and m attackers in
  the round. It is 0 if m is small, so the default is a number of ours. The sign of z std does not matter to the
  attack; in the equation above it lowers each coordinate of the update.
- `ipm` (Xie, Koyejo, Gupta, "Fall of Empires", UAI 2019): by default the updates of all honest clients of the
  round, as in the paper.
- `mimic` (Karimireddy, He, Jaggi, ICLR 2022): the update of its target. The target is the first client of a fixed
  order, drawn from the seed, that is honest and takes part in the round. The paper also chooses the target by the
  direction of the largest variance, found in a warm-up phase; this form is not here.

If no update is known, the reply is honest. Only parameters are attacked: buffers and integers are honest. Records
that a rule gets in addition to the model, such as SCAFFOLD's, are changes themselves and are attacked in the same
way, with w = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from server_app.config.attacks import ALittle, Attackers, InnerProduct, Liars, Scaled


@dataclass(frozen=True)
class Present:
    """The clients whose replies of a round are there, by id, in increasing order."""

    attackers: Sequence[int]
    honest: Sequence[int]
    order: Sequence[int]  # all clients of the run, in an order drawn from the seed


class Attack:
    """What one attacker does. This one does nothing: the attack `none`."""

    colludes = False  # whether the update is computed from known ones; if there are none, the reply is honest
    flips_labels = False
    chooses = False  # whether the update is chosen among candidates, by what the round would give

    def known(self, present: Present) -> Sequence[int]:
        """The clients whose updates the attack is computed from."""
        return ()

    def update(self, update: np.ndarray, known: Sequence[np.ndarray], present: Present) -> np.ndarray:
        """u for one parameter, from the attacker's own update and the known ones; all float64, of one shape."""
        return update

    def examples(self, count: int) -> int:
        """The number of examples that is reported."""
        return count


class SignFlip(Attack):
    """u = -Delta_k."""

    def __init__(self, settings: Attackers) -> None:
        pass

    def update(self, update: np.ndarray, known: Sequence[np.ndarray], present: Present) -> np.ndarray:
        """The reversed update."""
        return -update


class ScaledUpdate(Attack):
    """u = factor Delta_k."""

    def __init__(self, settings: Scaled) -> None:
        self.factor = settings.factor

    def update(self, update: np.ndarray, known: Sequence[np.ndarray], present: Present) -> np.ndarray:
        """A multiple of the update."""
        return self.factor * update


class ALittleIsEnough(Attack):
    """u = mean - z std."""

    colludes = True

    def __init__(self, settings: ALittle) -> None:
        self.settings = settings

    def known(self, present: Present) -> Sequence[int]:
        """Those that `knowledge` names."""
        return present.attackers if self.settings.knowledge == "attackers" else present.honest

    def update(self, update: np.ndarray, known: Sequence[np.ndarray], present: Present) -> np.ndarray:
        """The mean minus z standard deviations."""
        z = self.settings.z
        if z == 0.0:
            z = z_max(len(present.attackers) + len(present.honest), len(present.attackers))
        return np.asarray(np.mean(known, axis=0) - z * np.std(known, axis=0))


def z_max(clients: int, attackers: int) -> float:
    """The largest z with which enough honest updates lie farther from the mean than the attackers'.

    0 if there is none that is positive.
    """
    honest = clients - attackers
    supporters = clients // 2 + 1 - attackers
    share = (honest - supporters) / honest if honest else 0.0
    return NormalDist().inv_cdf(share) if 0.5 < share < 1.0 else 0.0


class InnerProductManipulation(Attack):
    """u = -epsilon mean."""

    colludes = True

    def __init__(self, settings: InnerProduct) -> None:
        self.settings = settings

    def known(self, present: Present) -> Sequence[int]:
        """Those that `knowledge` names."""
        return present.attackers if self.settings.knowledge == "attackers" else present.honest

    def update(self, update: np.ndarray, known: Sequence[np.ndarray], present: Present) -> np.ndarray:
        """The reversed mean, times epsilon."""
        return np.asarray(-self.settings.epsilon * np.mean(known, axis=0))


class Mimic(Attack):
    """u = Delta_i of an honest client i."""

    colludes = True

    def __init__(self, settings: Attackers) -> None:
        pass

    def known(self, present: Present) -> Sequence[int]:
        """The first honest client in the drawn order."""
        return [client for client in present.order if client in present.honest][:1]

    def update(self, update: np.ndarray, known: Sequence[np.ndarray], present: Present) -> np.ndarray:
        """The update of the target."""
        return known[0]


class LabelFlip(Attack):
    """Honest training on flipped labels."""

    flips_labels = True

    def __init__(self, settings: Attackers) -> None:
        pass


class ManyExamples(Attack):
    """A lie about the number of examples."""

    def __init__(self, settings: Liars) -> None:
        self.factor = settings.factor

    def examples(self, count: int) -> int:
        """A multiple of the number."""
        return round(self.factor * count)
