"""The task of signals in the nodes' own tables or arrays, such as electrocardiograms."""

from __future__ import annotations

from typing import Annotated

from ...errors import require
from ...settings import Setting
from ..data import Data
from ..forms.columns import twice
from ..inputs import Inputs, Kind
from ..reading import Reading
from ..spec import Spec
from .nodes import LABEL, Classes, Mean, Std, both, classes_of


def own_signals(
    *,
    classes: Classes,
    channels: Annotated[
        list[str],
        Setting("names of the channels: sample k of channel ecg is the column ecg_k of a table, from 0"),
    ],
    samples: Annotated[int, Setting("samples of a channel", least=1, most=1_000_000)],
    target: Annotated[str, Setting("column of a table with the class")] = LABEL,
    mean: Mean = None,
    std: Std = None,
) -> Data:
    """The nodes' own signals, to classify: of an .npz file, or of a table with a column for each sample.

    `mean` and `std`: one value for each channel, both or none of the two; without them, they are computed over all
    nodes before the first round.
    """
    clear = all(name and name == name.strip() for name in channels) and twice(channels) is None
    require(bool(channels) and clear, "task.channels", channels, "at least one name, all different")
    outputs, names = classes_of(classes)
    mean_of, std_of = both("channel", mean, std, len(channels))
    reading = Reading(signals=tuple(channels), targets=(target,))
    require(target not in reading.of_signals(samples), "task.target", target, "a column that is no sample")
    inputs = Inputs(Kind.SIGNAL, (len(channels), samples))
    return Data.of_nodes(
        Spec(inputs, outputs, mean=mean_of, std=std_of, federated=not mean_of, names=names, reading=reading)
    )
