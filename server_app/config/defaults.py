"""The values of keys whose default depends on other keys and on the task: where is measured, and what is best."""

from __future__ import annotations

from dataclasses import replace

from fedstride import wire
from fedstride.errors import require
from fedstride.tasks.augmentation import check_augmentation
from fedstride.tasks.goals import scores_of
from fedstride.tasks.spec import Spec

from .schema import Config, check

HOLDOUT = 0.2
"""The share of held-out examples if only the clients can measure."""


def resolved(config: Config, spec: Spec) -> Config:
    """The configuration with `test_set`, `evaluate_clients`, `holdout` and `best`.

    If nodes have their own data, the server's test examples say nothing about them, so the clients measure, on
    examples that training never sees. With privacy they report nothing without noise, so the server measures.
    Raises ConfigError if no evaluation reports the metric `best`, or if a figure or an augmentation does not fit
    the task.
    """
    check_augmentation(spec, config.task.augmentation)
    own = config.partition.name == "own" and config.privacy.name == "none"
    test_set = not own if config.test_set is None else config.test_set
    by_clients = not test_set if config.evaluate_clients is None else config.evaluate_clients
    holdout = (0.0 if test_set else HOLDOUT) if config.holdout is None else config.holdout
    figures = list(scores_of(spec, config.task.metrics))
    places = [*(["test"] if test_set else []), *([wire.LOCAL] if by_clients else [])]
    reported = [f"{place}/{name}" for place in places for name in [*figures, "loss"]]
    reported += [wire.TRAIN_LOSS, *([wire.TRAIN_ACCURACY] if spec.classes else [])]
    best = reported[0] if config.best is None else config.best
    require(
        best in reported or best.partition("/")[0] not in ("test", wire.LOCAL, "train"),
        "best",
        best,
        f"a metric that this run reports: {', '.join(reported)} (set by task.metrics, test_set, evaluate_clients)",
    )
    done = replace(config, test_set=test_set, evaluate_clients=by_clients, holdout=holdout, best=best)
    check(done)
    return done
