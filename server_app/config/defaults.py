"""The values of keys whose default depends on other keys and on the task: where is measured, and what is best."""

from __future__ import annotations

from dataclasses import replace

from fedstride.errors import require
from fedstride.figures.metrics import check_target, fact
from fedstride.messages import wire
from fedstride.tasks.data import Data
from fedstride.tasks.forms.augmentation import check_augmentation
from fedstride.tasks.goals import check_figures, chosen_figures
from fedstride.tasks.proxy import TEST, TRAIN
from fedstride.tasks.spec import LOSSES, Spec, Target

from .calibrations import check_calibration
from .checks import check
from .keys import chain
from .schema import TABLES, Config

HOLDOUT = 0.2
"""The share of held-out examples if only the clients can measure."""


def resolved(config: Config, source: Data) -> Config:
    """The configuration with `test_set`, `evaluate_clients`, `holdout` and `best`.

    If nodes have their own data, the server's test examples say nothing about them, so the clients measure, on
    examples that training never sees. They also do if they compare two models. With privacy they report nothing
    without noise, so the server measures.
    Raises ConfigError if no evaluation reports the metric `best`, or if a figure or an augmentation does not fit
    the task.
    """
    spec, has_tests, private = source.spec, len(source.test_x) > 0, config.privacy.name != "none"
    _check_data_of_nodes(config, source)
    check_augmentation(spec, config.task.augmentation)
    on_nodes = config.partition.name == "own" and not private
    test_set = (has_tests and not on_nodes) if config.test_set is None else config.test_set
    missing = f"false: task={config.task.name} has no test examples"
    require(has_tests or not test_set, "test_set", test_set, missing)
    compares = not test_set or config.against is not None
    by_clients = compares if config.evaluate_clients is None else config.evaluate_clients
    holdout = (0.0 if test_set else HOLDOUT) if config.holdout is None else config.holdout
    _check_losses(config, spec)
    figures = chosen_figures(spec, config.task.metrics)
    check_figures(spec, figures)
    places = [*(["test"] if test_set else []), *([wire.LOCAL] if by_clients else [])]
    reported = [f"{place}/{name}" for place in places for name in [*figures, "loss"]]
    reported += [wire.TRAIN_LOSS, *([wire.TRAIN_ACCURACY] if spec.classes else [])]
    directed = next(name for name in reported if fact(name).better is not None)  # the loss, if no figure has one
    best = directed if config.best is None else config.best
    require(
        best in reported or best.partition("/")[0] not in ("test", wire.LOCAL, "train"),
        "best",
        best,
        f"a metric that this run reports: {', '.join(reported)} (set by task.metrics, test_set, evaluate_clients)",
    )
    if config.target is not None:
        check_target(best, config.target)
    require(
        not (spec.federated and private),
        "privacy",
        config.privacy.name,
        "none, because clients report statistics of their data without noise; or give task.mean and task.std",
    )
    done = replace(config, test_set=test_set, evaluate_clients=by_clients, holdout=holdout, best=best)
    check(done)
    check_calibration(done)
    _check_proxy(done)
    return done


def _check_proxy(config: Config) -> None:
    """Refuse a proxy set that this run cannot have."""
    chosen = config.task.proxy
    require(
        chosen != TEST or config.test_set is not False,
        "task.proxy",
        chosen,
        "none or train_holdout here, because the server has no test set (test_set=false, partition=own)",
    )
    require(
        chosen != TRAIN or config.partition.name != "own",
        "task.proxy",
        chosen,
        "none or test with partition=own, because the training examples are in the nodes' own files",
    )


def _check_losses(config: Config, spec: Spec) -> None:
    """Refuse a part that cannot be used with the loss of the task."""
    loss = config.task.loss or LOSSES[spec.target][0]
    for group, table in TABLES.items():
        for chosen in chain(getattr(config, group)):
            losses = table.find(chosen.name).losses
            require(
                not losses or loss in losses,
                group,
                chosen.name,
                f"one for the loss {loss}, which task={config.task.name} has here; {chosen.name} needs "
                + " or ".join(losses)
                + (", so a task with one class for each example" if {*losses} <= {*LOSSES[Target.CLASS]} else ""),
            )


def _check_data_of_nodes(config: Config, source: Data) -> None:
    """Refuse to divide a task that has no examples: all are in the nodes' own files."""
    require(
        len(source.train_x) > 0 or config.partition.name == "own",
        "partition",
        config.partition.name,
        f"own, because task={config.task.name} has no examples: each node has its own files (docs/node-data.md)",
    )
