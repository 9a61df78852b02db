"""The loss of a batch, and the sums and scores from which figures of predictions are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from ..errors import ConfigError
from ..scores import EXACT
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
                f"metrics = {list(chosen)} is not allowed: {name!r} is not a figure of this task, which has "
                f"{', '.join(possible)}"
            )
    return tuple(dict.fromkeys(chosen))


def figures_of(target: Target) -> tuple[str, ...]:
    """The figures that a task with this target can have."""
    return FIGURES[target]


@dataclass(frozen=True)
class Goal:
    """What is learnt: a loss, and the figures that are reported.

    `figures`: their names, in order. `sums`: of those that are computed from sums. `ranked`: for those that need
    the scores themselves; None if no figure does.
    """

    loss: Loss
    figures: tuple[str, ...]
    sums: Mapping[str, Sums]
    ranked: Ranked | None = None


def goal_of(spec: Spec, loss: str | None = None, metrics: Sequence[str] | None = None) -> Goal:
    """The goal with this loss and these figures; None: the task's default.

    Raises ConfigError if they do not fit the task.
    """
    figures, possible = chosen_figures(spec, metrics), _SUMS[spec.target]
    sums = {name: possible[name] for name in figures if name in possible}
    ranked = None if len(sums) == len(figures) else _RANKED[spec.target]
    return Goal(loss_of(spec, loss), figures, sums, ranked)


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


def _reduced(each: torch.Tensor, reduction: str) -> torch.Tensor:
    if reduction == "none":
        return each
    return each.mean() if reduction == "mean" else each.sum()


def _cross_entropy(outputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction=reduction)


_LOSSES: Mapping[str, Loss] = {
    "cross_entropy": _cross_entropy,
    "hinge": _hinge,
    "binary_cross_entropy": _per_output(nn.functional.binary_cross_entropy_with_logits),
    "squared_error": _per_output(nn.functional.mse_loss),
    "absolute_error": _per_output(nn.functional.l1_loss),
    "huber": _per_output(nn.functional.huber_loss),
}


# ---------------------------------------------------------------- sums


def _right(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.argmax(1) == targets).double().sum()[None]


def _per_class(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Examples, predicted and right ones of each class."""
    count = outputs.shape[1]
    predicted = outputs.argmax(1)
    hits = targets[predicted == targets]
    return tuple(torch.bincount(each, minlength=count).double() for each in (targets, predicted, hits))


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
    found = outputs.topk(min(5, outputs.shape[1]), dim=1).indices == targets[:, None]
    return found.any(1).double().sum()[None]


def _label_right(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The share of an example's labels that are predicted right, summed."""
    return ((outputs > 0) == (targets > 0.5)).double().mean(1).sum()[None]


def _label_counts(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    predicted, true = outputs > 0, targets > 0.5
    return torch.cat([each.double().sum(0) for each in (true, predicted, true & predicted)])


def _squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.double() - targets.double()).square().mean(1).sum()[None]


def _absolute(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.double() - targets.double()).abs().mean(1).sum()[None]


def _explained(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    y = targets.double()
    return torch.cat([(outputs.double() - y).square().sum(0), y.sum(0), y.square().sum(0)])


BY_CLASS = ("f1", "precision", "recall", "specificity", "jaccard")
"""Figures from the examples, the predicted and the right ones of each class or label."""

_RANKED: Mapping[Target, Ranked | None] = {
    Target.CLASS: _ranked_classes,
    Target.LABELS: _ranked_labels,
    Target.VALUES: None,
}

_SUMS: Mapping[Target, Mapping[str, Sums]] = {
    Target.CLASS: {
        "accuracy": _right,
        "balanced_accuracy": _balanced,
        "top5_accuracy": _top5,
        **dict.fromkeys((*BY_CLASS, "cohen_kappa", "matthews"), _class_counts),
    },
    Target.LABELS: {
        **dict.fromkeys(BY_CLASS, _label_counts),
        "accuracy": _label_right,
    },
    Target.VALUES: {"rmse": _squared, "mae": _absolute, "r2": _explained},
}

FIGURES: Mapping[Target, tuple[str, ...]] = {
    Target.CLASS: (*_SUMS[Target.CLASS], *EXACT),
    Target.LABELS: (*EXACT, *_SUMS[Target.LABELS]),
    Target.VALUES: tuple(_SUMS[Target.VALUES]),
}
"""The figures that a task can have."""

DEFAULT_SCORES: Mapping[Target, tuple[str, ...]] = {
    Target.CLASS: ("accuracy",),
    Target.LABELS: ("auroc", "f1"),
    Target.VALUES: ("rmse",),
}
"""The figures of a task if none are chosen; the first one is the headline."""
