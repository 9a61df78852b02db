"""Loads the model of a run's folder, with its network and the preparation of its inputs, and predicts with it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import nn

from fedstride import user_parts
from fedstride.errors import ConfigError, FedstrideError
from fedstride.files import bounded_reading
from fedstride.tasks.models import networks_by_name
from fedstride.tasks.models.tensors import Examples, load_arrays
from fedstride.tasks.own_files import unlabelled
from fedstride.tasks.own_files.unlabelled import Unlabelled
from fedstride.tasks.registry import MODELS
from fedstride.tasks.spec import Spec, Target
from server_app.config.compose import from_yaml
from server_app.config.schema import Config
from server_app.file_names import BEST, CONFIG, METRICS, MODEL, TASK
from server_app.records.line_files import read_lines
from server_app.stopping import chosen_round

if TYPE_CHECKING:
    import pandas as pd

Which = Literal["last", "best"]
FILES: dict[Which, str] = {"last": MODEL, "best": BEST}

HINGE = "hinge"
"""The loss whose outputs are no logits."""

BATCH = 256
"""Examples in a forward pass."""


@dataclass(frozen=True)
class Model:
    """A trained model that predicts on the processor.

    `network` takes prepared batches; `spec` says how they are prepared, and the names of what is predicted.
    """

    network: nn.Module
    spec: Spec
    config: Config
    folder: Path

    def __repr__(self) -> str:
        values = sum(parameter.numel() for parameter in self.network.parameters())
        return f"<{self.config.model.name}, {values:,} parameters, task {self.config.task.name}: {self.folder}>"

    def predict(
        self, source: str | Path | np.ndarray | pd.DataFrame | Mapping[str, Any] | Sequence[Mapping[str, Any]]
    ) -> pd.DataFrame:
        """A row for each example, in order, indexed by its line, row or file.

        `source`: a table (.csv, .csv.gz, .parquet), an .npz file with x, a file of one example or a folder of
        them; a DataFrame with the task's columns, or what pandas makes one of: a dict of columns, or a list of
        dicts, one for each row; or an array (n, ...) in the form of an .npz file. Targets and other columns are
        ignored.

        Columns, float64: of classes `class`, and `p(NAME)`, the probability of each, or `score(NAME)` if it was
        trained with the hinge loss, which gives no probabilities; of labels `p(NAME)`; of values NAME, in the unit
        of the training data; of a survival task `log_risk`: the larger, the earlier an event. Raises DataError,
        with the place, for what does not fit the task, ConfigError for another kind of source.
        """
        examples = self._read(source)
        return self._table(self.outputs(examples.x), examples)

    def outputs(self, x: np.ndarray) -> np.ndarray:
        """What the network returns for examples in the stored form of the task (n, ...): float64 (n, outputs).

        Of values it is in their unit; of classes and labels logits.
        """
        examples = Examples(x, np.zeros(len(x), np.int64), self.spec, device=torch.device("cpu"))
        with torch.no_grad():
            parts = [
                examples.in_units(
                    self.network(examples.inputs(np.arange(start, min(start + BATCH, len(x))))).double()
                )
                for start in range(0, len(x), BATCH)
            ]
        outputs: np.ndarray = torch.cat(parts).numpy()
        return outputs

    @property
    def gives(self) -> Literal["probabilities", "scores", "values"]:
        """What it predicts: scores are those of classes, after the hinge loss, which gives no probabilities."""
        if self.spec.target in (Target.VALUES, Target.SURVIVAL):
            return "values"
        return "scores" if getattr(self.config.task, "loss", None) == HINGE else "probabilities"

    def given(self, outputs: np.ndarray) -> np.ndarray:
        """What it gives (`gives`), from what the network returns: float64 (n, outputs)."""
        if self.gives == "probabilities":
            return softmax(outputs) if self.spec.target is Target.CLASS else _logistic(outputs)
        return outputs

    @property
    def names(self) -> list[str]:
        """Of classes, labels or values; their numbers from 0 if the task has no names; of survival `log_risk`."""
        if self.spec.target is Target.SURVIVAL:
            return ["log_risk"]
        return list(self.spec.names) or [str(number) for number in range(self.spec.outputs)]

    def _read(self, source: Any) -> Unlabelled:
        if isinstance(source, (str, Path)):
            return unlabelled.read(Path(source).expanduser(), self.spec)
        if isinstance(source, np.ndarray):
            return unlabelled.of_array(source, self.spec)
        frame = _frame(source)
        return unlabelled.of_frame(list(frame.columns), frame.itertuples(index=False, name=None), self.spec)

    def _table(self, outputs: np.ndarray, examples: Unlabelled) -> pd.DataFrame:
        import pandas as pd

        index, values = pd.Index(examples.where, name=examples.unit), self.given(outputs)
        if self.gives == "values":
            return pd.DataFrame(values, index, self.names)
        sign = "score" if self.gives == "scores" else "p"
        table = pd.DataFrame(values, index, [f"{sign}({name})" for name in self.names])
        if self.spec.target is Target.CLASS:
            table.insert(0, "class", [self.names[at] for at in outputs.argmax(1)])
        return table


def _frame(source: Any) -> pd.DataFrame:
    """A DataFrame, or the one of a dict of columns or of a list of rows. Raises ConfigError for anything else."""
    import pandas as pd

    if isinstance(source, pd.DataFrame):
        return source
    is_rows = isinstance(source, (list, tuple)) and all(isinstance(row, Mapping) for row in source)
    if isinstance(source, Mapping) or (is_rows and len(source)):
        with contextlib.suppress(ValueError):  # of columns that are no columns, or of different lengths
            return pd.DataFrame(source)
        why = "a dict whose values are not columns of one length"
    else:
        why = "an empty list" if is_rows else f"a {type(source).__name__}"
    raise ConfigError(
        f"predict was given {why}: it takes a path, a DataFrame, a dict of columns such as {{'age': [50, 61]}}, a "
        "list of dicts such as [{'age': 50}, {'age': 61}], or an array"
    )


@user_parts.alone()
def load(folder: str | Path, which: Which = "last", *, parts: str | Path | None = None) -> Model:
    """The model of a run's folder: of its `last` round, or of the `best` one by the metric that decides.

    The path of that model's file in the folder is accepted, too. The folder needs `config.yaml`, `task.json` and
    the file with the weights; the task's data are not needed. A network of a user's own is built by the file of
    parts that the run names, or by `parts`; that file is executed. Raises ConfigError, in one line with the file,
    for what is missing, damaged or does not fit.
    """
    if which not in FILES:
        raise ConfigError(f"which = {which!r} is not allowed: it must be {' or '.join(FILES)}")
    place = folder_of(folder, which)
    name = CONFIG
    try:
        config = _config(bounded_reading.text(place / name), None if parts is None else str(parts))
        name = TASK
        spec = Spec.unflatten(
            bounded_reading.from_json(bounded_reading.content(place / name, bounded_reading.SMALL))
        )
        network = networks_by_name.build(config.model, spec.inputs, spec.outputs, config.seed)
        name = FILES[which]
        load_arrays(network, _arrays(place / name))
        if which == "best":
            _check_best(place, config.headline)
    except FileNotFoundError as error:
        raise ConfigError(f"{place} is not the folder of a run with a model: {name} does not exist") from error
    except (OSError, ValueError, RuntimeError, FedstrideError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ConfigError(f"{place / name} cannot be used: {reason[:300]}") from error
    return Model(network.eval(), spec, config, place.absolute())


def _check_best(folder: Path, metric: str) -> None:
    """Raises ValueError if the file has the model of another round than the best one of the run's records."""
    from safetensors import safe_open

    with safe_open(folder / BEST, "np") as file:
        stored = (file.metadata() or {}).get("round", "")
    chosen = None
    with contextlib.suppress(ConfigError):  # of a figure of a user's own nothing is known here
        chosen = chosen_round(read_lines(folder / METRICS), metric)
    if chosen is not None and stored.isdecimal() and int(stored) != chosen[0]:
        why = "the run was resumed before it" if int(stored) > chosen[0] else "the better one was not written"
        raise ValueError(
            f"it is the model of round {stored}, and {why}. The best round is {chosen[0]}, whose model is not "
            "there; use that of the last round"
        )


def folder_of(path: str | Path, which: Which = "last") -> Path:
    """The run's folder that is named, or that has the named file with the model of `which` round.

    Raises ConfigError for another file.
    """
    place = Path(path).expanduser()
    if not place.is_file():
        return place
    folder = place.absolute().parent
    if not (folder / CONFIG).is_file():
        raise ConfigError(f"{place} is a file, not the folder of a run: name the folder that the run has written")
    if place.name != FILES[which]:
        raise ConfigError(
            f"{place} is not the model of the {which} round, {FILES[which]}: name the run's folder, {folder}, "
            "and for the model of the best round --best (in Python: which='best')"
        )
    return folder


def _config(text: str, parts: str | None) -> Config:
    """The configuration; a file of parts is executed only if the network is one of them."""
    config = from_yaml(text, execute=False)
    return config if config.model.name in MODELS else from_yaml(text, parts)


def _arrays(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        arrays: dict[str, torch.Tensor] = load(bounded_reading.content(path))
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    return arrays


def softmax(outputs: np.ndarray) -> np.ndarray:
    """The probability of each class from logits, float64 (n, classes)."""
    shifted = np.exp(outputs - outputs.max(1, keepdims=True))
    probabilities: np.ndarray = shifted / shifted.sum(1, keepdims=True)
    return probabilities


def _logistic(outputs: np.ndarray) -> np.ndarray:
    """The probability of each label from logits, float64 (n, labels)."""
    small = np.exp(-np.abs(outputs))
    probabilities: np.ndarray = np.where(outputs >= 0, 1.0, small) / (1.0 + small)
    return probabilities
