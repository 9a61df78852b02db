"""Tasks without data: all examples are in the nodes' own files, and the settings say what an example is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from ...errors import ConfigError, require
from ...settings import MOST_CLASSES, Setting
from ..data import Data
from ..forms.columns import Column, composed, parsed, twice, width
from ..inputs import Inputs, Kind
from ..missing import RULES, divided
from ..reading import RESIZED, Reading
from ..spec import Spec, Target
from .sound import Bands, Features, Step, Window, log_mel_of, sound_spec
from .text import Length, Vocabulary

Classes = Annotated[
    int | list[str],
    Setting("the number of classes, or their names in the order of their numbers", least=2, most=MOST_CLASSES),
]
Mean = Annotated[list[float] | None, Setting("what is subtracted from the values of each channel, column or band")]
Std = Annotated[
    list[float] | None,
    Setting("what the values of each channel, column or band are divided by, after that", above=0),
]
LABEL = "label"  # the default name of the column with the class

SHAPE = [3, 64, 64]  # never changed
TEXTS = ["text"]  # never changed


def own_images(
    *,
    classes: Classes,
    shape: Annotated[list[int], Setting("channels, height and width of an image", least=1, most=100_000)] = SHAPE,
    mean: Mean = None,
    std: Std = None,
    resize: Annotated[
        str,
        Setting(
            "images of another size: none (refused), stretch, crop (the middle, in the task's shape) or pad (with "
            "black)",
            options=("none", *filter(None, RESIZED)),
        ),
    ] = "none",
    convert: Annotated[
        bool,
        Setting("convert images of other pixels (palette, transparent, CMYK, 16 bits); else they are refused"),
    ] = False,
    window: Annotated[
        list[float] | None,
        Setting("values of grey that become 0 and 255: of 16 bits (default: 0 and 65535), of DICOM and of NIfTI"),
    ] = None,
) -> Data:
    """The nodes' own images, to classify: values from 0 to 255, divided by 255 for a network.

    `mean` and `std`: one value for each channel, of values in [0, 1]; 0.5 by default, so a network gets [-1, 1].
    """
    require(len(shape) == 3, "task.shape", shape, "three numbers: channels, height and width")
    low, high = window if window is not None and len(window) == 2 else (0.0, 0.0)
    require(window is None or low < high, "task.window", window, "two numbers, the lower one first")
    reading = Reading(
        resize="" if resize == "none" else resize, convert=convert, lowest=float(low), highest=float(high)
    )
    outputs, names = classes_of(classes)
    middle = (0.5,) * shape[0]
    mean_of, std_of = (
        _per("channel", key, values, shape[0]) or middle for key, values in (("mean", mean), ("std", std))
    )
    inputs = Inputs(Kind.IMAGE, (shape[0], shape[1], shape[2]))
    return Data.of_nodes(
        Spec(inputs, outputs, mean=mean_of, std=std_of, scale=255.0, names=names, reading=reading)
    )


def own_table(
    *,
    columns: Annotated[
        list[str],
        Setting("columns of an example: NAME of a number, or NAME=first|second|third of a category"),
    ],
    target: Annotated[
        str | list[str],
        Setting("column to predict; several columns for kind labels or values, [TIME,EVENT] for kind survival"),
    ] = LABEL,
    kind: Annotated[
        str,
        Setting(
            "what is predicted: one class, labels that are 0 or 1, values, or for survival a risk, from the "
            "columns of a time and of an event, 1 or 0 (censored)",
            options=tuple(str(target) for target in Target),
        ),
    ] = str(Target.CLASS),
    classes: Annotated[
        int | list[str] | None,
        Setting("for kind class: the number of classes, or their names in order", least=2, most=MOST_CLASSES),
    ] = None,
    missing: Annotated[
        str | list[str],
        Setting(
            "an empty cell of an example: an error, or the mean or median of its column; with +indicator there is "
            'one more number, 1 where it is empty; for single columns a list, as [mean, "age=median+indicator"]',
            options=RULES,
        ),
    ] = "error",
    mean: Mean = None,
    std: Std = None,
    fill: Annotated[
        list[float] | None,
        Setting("with a median: what replaces an empty cell, one for each of these numbers; not computed then"),
    ] = None,
    target_mean: Annotated[
        list[float] | None, Setting("for kind values: what is subtracted from each value")
    ] = None,
    target_std: Annotated[
        list[float] | None, Setting("for kind values: what each value is divided by, after that", above=0)
    ] = None,
) -> Data:
    """The nodes' own tables. A column of numbers gives one number of an example, a category one for each name.

    `mean` and `std`: one value for each of these numbers, both or none of the two; without them, they are computed
    over all nodes before the first round. So are `target_mean` and `target_std` of values to predict, and `fill`
    where a rule is a median: the medians of these columns, if they are of numbers, and the means of all others.
    """
    parsed_columns = parsed(columns)
    require(bool(parsed_columns), "task.columns", columns, "a list with at least one column")
    targets = _columns_to_predict(target, parsed_columns)
    outputs, names = _predicted(Target(kind), targets, classes)
    values = Target(kind) is Target.VALUES
    require(values or target_mean is None, "task.target_mean", target_mean, f"null with task.kind={kind}")
    numbers = width(parsed_columns)
    rule, single = divided([missing] if isinstance(missing, str) else list(map(composed, missing)), parsed_columns)
    reading = Reading(columns=tuple(columns), targets=targets, missing=rule, missing_of=single)
    require(reading.has_medians or fill is None, "task.fill", fill, "null without a rule of a median")
    mean_of, std_of = both("column", mean, std, numbers)
    fill_of = _per("number", "fill", fill, numbers)
    as_they_are = len(reading.indicators)
    target_mean_of, target_std_of = both("value", target_mean, target_std, outputs, "target_")
    return Data.of_nodes(
        Spec(
            Inputs(Kind.TABLE, (numbers + as_they_are,)),
            outputs,
            Target(kind),
            mean=mean_of and (*mean_of, *[0.0] * as_they_are),
            std=std_of and (*std_of, *[1.0] * as_they_are),
            target_mean=target_mean_of,
            target_std=target_std_of,
            federated=not mean_of or (values and not target_mean_of) or (reading.has_medians and not fill_of),
            names=names,
            reading=reading,
            fill=fill_of and (*fill_of, *[0.0] * as_they_are),
        )
    )


def own_texts(
    *,
    classes: Classes,
    columns: Annotated[
        list[str], Setting("columns of a table with the text; several are joined with a blank")
    ] = TEXTS,
    target: Annotated[str, Setting("column of a table with the class")] = LABEL,
    length: Length = 64,
    vocabulary: Vocabulary = 20_000,
) -> Data:
    """The nodes' own texts, to classify. Words become numbers as in the other tasks of texts."""
    require(bool(columns), "task.columns", columns, "a list with at least one column")
    outputs, names = classes_of(classes)
    inputs = Inputs(Kind.TOKENS, (length,), vocabulary)
    reading = Reading(texts=tuple(columns), targets=(target,))
    return Data.of_nodes(Spec(inputs, outputs, names=names, reading=reading))


def own_sounds(
    *,
    classes: Classes,
    rate: Annotated[
        int, Setting("samples of a recording per second", least=100, most=1_000_000, unit="Hz")
    ] = 16_000,
    seconds: Annotated[
        float,
        Setting(
            "length of an example; longer recordings are cut, shorter ones filled", above=0, most=3600, unit="s"
        ),
    ] = 1.0,
    features: Features = "log_mel",
    window: Window = 25.0,
    step: Step = 10.0,
    bands: Bands = 40,
    mean: Mean = None,
    std: Std = None,
) -> Data:
    """The nodes' own recordings, to classify. `features`: log_mel gives frames, waveform the samples in [-1, 1].

    `mean` and `std`: one value for each band of log_mel, or one for waveform; both or none of the two. Without
    them, those of the bands are computed over all nodes before the first round, and samples are not changed.
    """
    outputs, names = classes_of(classes)
    samples = round(rate * seconds)
    require(samples >= 1, "task.seconds", seconds, f"at least {1 / rate:g}, one sample")
    log_mel = log_mel_of(features, rate, window, step, bands)
    normalised = both("band", mean, std, bands) if log_mel else both("channel", mean, std, 1)
    spec = sound_spec(log_mel, rate, samples, outputs, names, *normalised)
    return Data.of_nodes(replace(spec, federated=not spec.mean))


# ---------------------------------------------------------------- settings


def classes_of(classes: int | list[str]) -> tuple[int, tuple[str, ...]]:
    """The number of classes and their names. Raises ConfigError for empty or equal ones, or blanks at an end."""
    if isinstance(classes, int):
        return classes, ()
    names = tuple(classes)
    clear = all(name and name == name.strip() for name in names) and twice(names) is None
    require(
        len(names) >= 2 and clear,
        "task.classes",
        classes,
        "a whole number of at least 2, or at least two different names, of which 1 and 1.0 are one, without "
        "blanks at their ends",
    )
    return len(names), names


def _columns_to_predict(target: str | list[str], columns: Sequence[Column]) -> tuple[str, ...]:
    """The names of the target's columns, none of which an example may have."""
    targets = tuple(composed(name) for name in ([target] if isinstance(target, str) else target))
    shared = sorted({column.name for column in columns} & set(targets))
    require(not shared, "task.target", target, f"another column: {', '.join(shared)} is in task.columns")
    return targets


def _predicted(
    kind: Target, targets: tuple[str, ...], classes: int | list[str] | None
) -> tuple[int, tuple[str, ...]]:
    """The number of outputs and their names."""
    unique = len(set(targets)) == len(targets)
    require(unique and all(targets), "task.target", list(targets), "different names of columns")
    if kind is not Target.CLASS:
        require(
            classes is None, "task.classes", classes, f"null with task.kind={kind}: task.target has the outputs"
        )
        if kind is Target.SURVIVAL:
            two = "two columns with task.kind=survival: the time, and the event, 1 or 0 (censored)"
            require(len(targets) == 2, "task.target", list(targets), two)
            return 1, ()
        require(bool(targets), "task.target", [], "at least one column")
        return len(targets), targets
    require(len(targets) == 1, "task.target", list(targets), "one column with task.kind=class")
    if classes is None:
        raise ConfigError("task.classes is missing: with task.kind=class it must be a number or a list of names")
    return classes_of(classes)


def both(
    what: str, mean: list[float] | None, std: list[float] | None, count: int, prefix: str = ""
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation as given; both empty if none is."""
    missing = f"task.{prefix}{'std' if std is None else 'mean'}"
    require((mean is None) == (std is None), missing, None, "given too: mean and std belong together")
    return _per(what, f"{prefix}mean", mean, count), _per(what, f"{prefix}std", std, count)


def _per(what: str, key: str, values: list[float] | None, count: int) -> tuple[float, ...]:
    """The values as given; empty if none are. Raises ConfigError if there is not one for each."""
    if values is None:
        return ()
    require(len(values) == count, f"task.{key}", values, f"a list of {count} numbers, one for each {what}")
    return tuple(float(value) for value in values)
