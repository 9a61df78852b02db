"""Checks of a whole configuration: each value's range, and values that are not allowed together."""

from __future__ import annotations

from fedstride.errors import require
from fedstride.figures.metrics import declared, directed, fact
from fedstride.messages.node_names import ChosenNodes
from fedstride.settings import check_fields, fields_of
from fedstride.tasks.evaluation.holdout import folds_of
from strategies.replies.screening_settings import Screening

from .allowed_by_user import check_permits
from .attacks import check_attack
from .keys import chain
from .schema import BY_CLIENTS, TABLES, Config


def check(config: Config, *, parts_are_loaded: bool = True) -> None:
    """Raise ConfigError for the first value that is out of its range.

    `parts_are_loaded`: if not, a metric of the file of parts is not known, and may be `best`.
    """
    check_fields(fields_of(Config).values(), vars(config))
    check_fields(fields_of(Screening).values(), vars(config.screening), "screening")
    for group, table in TABLES.items():
        path = group
        for spec in chain(getattr(config, group)):
            if spec.name in table:  # not for placeholders, see `from_yaml`
                table.check(spec, path)
            path += ".inner"
    check_permits(config.allow)
    _check_local_steps(config)
    require(
        config.name is None or is_folder_name(config.name),
        "name",
        config.name,
        f"the name of one folder, of at most {MAX_FOLDER_NAME} bytes, without / and \\ and control characters, "
        "not beginning with . - or ~; to choose where the folder is created, use out=FOLDER",
    )
    require(
        config.rounds > 0 or config.initial is not None,
        "rounds",
        config.rounds,
        "at least 1, or 0 with initial=FILE, the model to measure",
    )
    _check_files(config)
    _check_against(config)
    _check_fold(config)
    between = f"between 1 and clients = {config.clients}"
    require(config.cohort is None or config.cohort <= config.clients, "cohort", config.cohort, between)
    require(config.start_size <= config.clients, "min_clients", config.min_clients, f"{between}, or null")
    chosen = ChosenNodes(config.nodes)
    require(
        chosen.problem is None,
        "nodes",
        config.nodes,
        f"names and patterns, as in hospital-a,clinic-*, but {chosen.problem}",
    )
    require(
        not chosen.all_are_names or len(chosen.names) == config.clients,
        "nodes",
        config.nodes,
        f"clients = {config.clients} names, or patterns; or set clients={len(chosen.names)}",
    )
    quorum = config.screening.quorum
    most = f"between 1 and {config.cohort_size}, the number of clients in a round"
    require(quorum <= config.cohort_size, "screening.quorum", quorum, most)
    require(
        config.best is None
        or fact(config.best).better is not None
        or (not parts_are_loaded and declared(config.best) is None),
        "best",
        config.best,
        f"one of {', '.join(directed())}",
    )
    _check_best_quorum(config)
    check_attack(config)


def _check_files(config: Config) -> None:
    """Refuse files of clients of which there is not one for each."""
    files = getattr(config.partition, "files", None)
    require(
        not files or len(files) == config.clients,
        "partition.files",
        files,
        f"one path for each of the {config.clients} clients",
    )


def _check_against(config: Config) -> None:
    """Refuse a second model where there is no first one, or where it would not be measured."""
    require(
        config.against is None or (config.rounds == 0 and config.initial is not None),
        "against",
        config.against,
        "omitted, or given with rounds=0 and initial=FILE, the model that it is compared with",
    )
    require(
        config.against is None or config.evaluate_clients is not False,
        "evaluate_clients",
        config.evaluate_clients,
        "true with against=FILE: the clients compare the two models",
    )


def _check_fold(config: Config) -> None:
    """Refuse a fold that the share does not have. A share that is not given is known later."""
    if config.fold and config.holdout is not None:
        most = folds_of(config.holdout) - 1
        allowed = (
            f"0 to {most} with holdout = {config.holdout:g}" if most else f"0 with holdout = {config.holdout:g}"
        )
        require(config.fold <= most, "fold", config.fold, allowed)


def _check_best_quorum(config: Config) -> None:
    """Refuse a quorum that no round can have: then there would never be a best model."""
    asked = config.cohort_size
    require(
        config.best_quorum is None or config.best_quorum <= asked,
        "best_quorum",
        config.best_quorum,
        f"between 1 and {asked}, the number of clients in a round, or null",
    )
    alone = asked == 1 < config.clients and config.best_quorum is None
    require(
        not (alone and config.best is not None and config.best.startswith(BY_CLIENTS)),
        "best",
        config.best,
        "a metric that the server measures, for example test/loss, because a round has only one client, which "
        "would decide alone; set best_quorum=1 if you want that",
    )


MAX_FOLDER_NAME = 200
"""Bytes of a run folder's name. File systems allow 255; a number may be appended."""


def is_folder_name(name: str) -> bool:
    """Whether a text is the name of one visible folder, on every common file system and in every terminal."""
    return (
        0 < len(name.encode(errors="replace")) <= MAX_FOLDER_NAME
        and name.isprintable()  # excludes control characters, and marks that change the direction of text
        and name == name.strip()
        and name[0] not in ".-~"  # hidden, an option of a command, somebody's home
        and not set(name) & set("/\\")
    )


def _check_local_steps(config: Config) -> None:
    """Refuse a `client.local_steps` that differs from the strategy's own number of mini-batches (A4-10)."""
    path = "strategy"
    for spec in chain(config.strategy):
        by_strategy = getattr(spec, "local_steps", None)
        by_client = config.client.local_steps
        require(
            by_strategy is None or by_client in (None, by_strategy),
            "client.local_steps",
            by_client,
            f"{path}.local_steps = {by_strategy}, because {spec.name} sets the number of mini-batches in a round; "
            f"set {path}.local_steps instead, or omit client.local_steps",
        )
        path += ".inner"
