"""The loss of a batch, and the sums and scores from which figures of predictions are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import nn

from ..errors import ConfigError
from ..figures.figure import Figure, try_out
from ..figures.scores import EXACT, SCORES, score_of
from ..parts import METRIC, USER_PARTS
from .spec import LOSSES, Spec, Target


class Loss(Protocol):
    """A loss: `mean` or `sum` over the examples, or `none`: the loss of each example, (n,)."""

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        """The loss of a batch."""


Sums = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(outputs, targets) -> sums over the examples, float64 (k,)."""

Ranked = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""(outputs, targets) -> scores by which examples are ranked, float64 (n, k); which are positive, bool (n, k)."""


def loss_of(spec: Spec, name: str | None = None) -> Loss:
    """The loss of this name for a task; its default loss if None. Raises ConfigError if it does not fit."""
    allowed = LOSSES[spec.target]
    chosen = allowed[0] if name is None else name
    if chosen not in allowed:
        raise ConfigError(f"loss = {chosen!r} is not allowed: for this task it must be {' or '.join(allowed)}")
    return _LOSSES[chosen]


def chosen_figures(spec: Spec, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """The figures with these names; the task's default figures if None.

    Raises ConfigError for a figure that the task does not have.
    """
    possible = figures_of(spec.target)
    chosen = DEFAULT_SCORES[spec.target] if names is None else tuple(names)
    for name in chosen:
        if name not in possible:
            raise ConfigError(
                f"task.metrics = {list(chosen)} is not allowed: {name!r} is not a figure of this task, which has "
                f"{', '.join(possible)}",
                key="task.metrics",
            )
    return tuple(dict.fromkeys(chosen))


def figures_of(target: Target) -> tuple[str, ...]:
    """The figures that a task with this target can have, user-defined ones last."""
    names = [name for name in USER_PARTS.get(METRIC, {}) if name not in FIGURES[target]]
    figures = {name: score.figure for name in names if (score := score_of(name)) is not None}
    return (*FIGURES[target], *(name for name, figure in figures.items() if figure and target in figure.predicts))


def check_figures(spec: Spec, names: Sequence[str]) -> None:
    """Raise ConfigError for a figure among these whose user-defined code cannot compute it of made-up rows."""
    for name in names:
        if name in USER_PARTS.get(METRIC, {}) and (figure := _figure(name)) is not None:
            try_out(figure, name, str(spec.target), spec.outputs)


def _figure(name: str) -> Figure | None:
    """What computes the state of a figure; None if it has none."""
    score = score_of(name)
    return None if score is None else score.figure


@dataclass(frozen=True)
class Goal:
    """What is learnt: a loss, and the figures that are reported.

    `figures`: their names, in order. `sums`: of those that are computed from sums over batches. `ranked`: for
    those that need the scores themselves; None if no figure does. `states`: of those that are computed from a
    state of all rows together.
    """

    loss: Loss
    figures: tuple[str, ...]
    sums: Mapping[str, Sums]
    ranked: Ranked | None = None
    states: Mapping[str, Figure] = field(default_factory=dict)


def goal_of(spec: Spec, loss: str | None = None, metrics: Sequence[str] | None = None) -> Goal:
    """The goal with this loss and these figures; None: the task's default.

    Raises ConfigError if they do not fit the task.
    """
    figures, possible = chosen_figures(spec, metrics), _SUMS[spec.target]
    sums = {name: possible[name] for name in figures if name in possible}
    states = {name: figure for name in figures if (figure := _figure(name)) is not None}
    ranked = _RANKED[spec.target] if EXACT.keys() & set(figures) else None
    return Goal(loss_of(spec, loss), figures, sums, ranked, states)


def rates_of(sums: Iterable[float], count: int) -> list[float]:
    """The sums of a figure over `count` examples as rates, from which `Score.of` computes the figure."""
    return [float(value) / count for value in sums]


# ---------------------------------------------------------------- losses


def _hinge(outputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Crammer and Singer's hinge loss: max(0, 1 + the largest other output - the right one)."""
    right = outputs.gather(1, targets[:, None])[:, 0]
    others = outputs.scatter(1, targets[:, None], -torch.inf).amax(1)
    return _reduced((1.0 + others - right).clamp_min(0.0), reduction)


def _per_output(loss: Callable[..., torch.Tensor]) -> Loss:
    """The mean over the outputs of an example."""

    def mean(outputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        return _reduced(loss(outputs, targets, reduction="none").mean(1), reduction)

    return mean


def _reduced(losses: torch.Tensor, reduction: str) -> torch.Tensor:
    if reduction == "none":
        return losses
    return losses.mean() if reduction == "mean" else losses.sum()


def _cross_entropy(outputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction=reduction)


def cox(outputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """The negative log of Cox's partial likelihood (1972) within a batch, with Breslow's approximation for ties.

    `outputs`: the log risk r, (n, 1). `targets`: (n, 2), the time t and the event e, 1 or 0 (censored). The loss
    of row i is

        l_i = e_i (log sum_{j: t_j >= t_i} exp(r_j) - r_i),

    and `mean` is the mean over all n rows, with an event or not. A batch without events has the loss 0, and so has
    one row.

    Two things are approximated. The rows at risk are those of the batch, and not all of the site or of all sites:
    the expected loss is that of a random set of so many rows, so its size belongs to the loss, and larger batches
    are nearer to Cox's likelihood. And rows that have their events at one time are each compared with all of them
    (Breslow), not with those that are left (Efron), which matters if many times are equal. No row is compared with
    one of another site, so each site may have its own baseline hazard (a stratified Cox model).
    """
    risk, time, event = outputs[:, 0], targets[:, 0], targets[:, 1]
    later = time[None, :] >= time[:, None]
    at_risk = torch.where(later, risk[None, :], -torch.inf).logsumexp(1)
    return _reduced(torch.where(event > 0.5, at_risk - risk, 0.0), reduction)


_LOSSES: Mapping[str, Loss] = {
    "cross_entropy": _cross_entropy,
    "hinge": _hinge,
    "binary_cross_entropy": _per_output(nn.functional.binary_cross_entropy_with_logits),
    "squared_error": _per_output(nn.functional.mse_loss),
    "absolute_error": _per_output(nn.functional.l1_loss),
    "huber": _per_output(nn.functional.huber_loss),
    "cox": cox,
}


# ---------------------------------------------------------------- sums


def _predicted(outputs: torch.Tensor) -> torch.Tensor:
    """The class with the largest output; -1, which is right for no example, where an output is NaN."""
    return outputs.argmax(1).where(~outputs.isnan().any(1), -1)


def _right(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (_predicted(outputs) == targets).double().sum()[None]


def _per_class(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Examples, predicted and right ones of each class."""
    count = outputs.shape[1]
    predicted = _predicted(outputs)
    hits = targets[predicted == targets]
    groups = (targets, predicted[predicted >= 0], hits)
    return tuple(torch.bincount(classes, minlength=count).double() for classes in groups)


def _balanced(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    examples, _, right = _per_class(outputs, targets)
    return torch.cat([examples, right])


def _class_counts(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.cat(_per_class(outputs, targets))


def _ranked_classes(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each class against the others, by log p / (1 - p); with two classes, class 1 alone."""
    outputs = outputs.double()
    positive = nn.functional.one_hot(targets, outputs.shape[1]).bool()
    if outputs.shape[1] == 2:
        return (outputs[:, 1] - outputs[:, 0])[:, None], positive[:, 1:]
    log_p, top = outputs.log_softmax(1), outputs.argmax(1, keepdim=True)
    others = outputs.scatter(1, top, -torch.inf).logsumexp(1, keepdim=True) - outputs.logsumexp(1, keepdim=True)
    rest = torch.log1p(-log_p.exp()).scatter(1, top, others)  # 1 - p of the largest p from the others: p may be 1
    return log_p - rest, positive


def _ranked_labels(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return outputs.double(), targets > 0.5


def _top5(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    hits = outputs.topk(min(5, outputs.shape[1]), dim=1).indices == targets[:, None]
    return (hits.any(1) & ~outputs.isnan().any(1)).double().sum()[None]


def _label_right(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The share of an example's labels that are predicted right, summed; NaN is wrong."""
    right = ((outputs > 0) == (targets > 0.5)) & ~outputs.isnan()
    return right.double().mean(1).sum()[None]


def _label_counts(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    predicted, true = outputs > 0, targets > 0.5
    return torch.cat([labels.double().sum(0) for labels in (true, predicted, true & predicted)])


def _squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.double() - targets.double()).square().mean(1).sum()[None]


def _absolute(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.double() - targets.double()).abs().mean(1).sum()[None]


def _explained(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    y = targets.double()
    return torch.cat([(outputs.double() - y).square().sum(0), y.sum(0), y.square().sum(0)])


def _brier(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The squared errors of the probabilities: of class 1 if there are two, else summed over the classes."""
    if outputs.shape[1] == 2:
        p = (outputs[:, 1] - outputs[:, 0]).double().sigmoid()
        return (p - targets.double()).square().sum()[None]
    p = outputs.double().softmax(1)
    return (p - nn.functional.one_hot(targets, outputs.shape[1])).square().sum()[None]


def _label_brier(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean over an example's labels of the squared error of the probability, summed."""
    return (outputs.double().sigmoid() - targets.double()).square().mean(1).sum()[None]


BY_CLASS = ("f1", "precision", "recall", "specificity", "jaccard")
"""Figures from the examples, the predicted and the right ones of each class or label."""

_RANKED: Mapping[Target, Ranked | None] = {
    Target.CLASS: _ranked_classes,
    Target.LABELS: _ranked_labels,
    Target.VALUES: None,
    Target.SURVIVAL: None,
}

_SUMS: Mapping[Target, Mapping[str, Sums]] = {
    Target.CLASS: {
        "accuracy": _right,
        "balanced_accuracy": _balanced,
        "top5_accuracy": _top5,
        **dict.fromkeys((*BY_CLASS, "cohen_kappa", "matthews"), _class_counts),
        "brier": _brier,
    },
    Target.LABELS: {
        **dict.fromkeys(BY_CLASS, _label_counts),
        "accuracy": _label_right,
        "brier": _label_brier,
    },
    Target.VALUES: {"rmse": _squared, "mae": _absolute, "r2": _explained},
    Target.SURVIVAL: {},
}

_STATES = {name: score.figure for name, score in SCORES.items() if score.figure is not None}

FIGURES: Mapping[Target, tuple[str, ...]] = {
    target: (*first, *(name for name, figure in _STATES.items() if target in figure.predicts))
    for target, first in (
        (Target.CLASS, (*_SUMS[Target.CLASS], *EXACT)),
        (Target.LABELS, (*EXACT, *_SUMS[Target.LABELS])),
        (Target.VALUES, tuple(_SUMS[Target.VALUES])),
        (Target.SURVIVAL, ()),
    )
}
"""The built-in figures that a task can have."""

DEFAULT_SCORES: Mapping[Target, tuple[str, ...]] = {
    Target.CLASS: ("accuracy",),
    Target.LABELS: ("auroc", "f1"),
    Target.VALUES: ("rmse",),
    Target.SURVIVAL: ("c_index",),
}
"""The figures of a task if none are chosen; the first one is the headline."""
