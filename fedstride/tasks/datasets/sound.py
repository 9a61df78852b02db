"""Speech Commands and the Free Spoken Digit Dataset: folders of WAV files, as published."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from ...errors import ConfigError, DataError
from ...settings import Setting
from ..cache import cached
from ..data import Data
from ..files import digest, files_in
from ..forms.logmel import FLOOR, LogMel
from ..forms.wav import FULL_SCALE, fitted, read
from ..inputs import Inputs, Kind
from ..reading import Reading
from ..spec import Spec
from ..statistics.moments import moments, normalisation
from .files import Published, Root, root_folder

COMMANDS = Published(
    "speech_commands", "speech_commands_v0.02", "http://download.tensorflow.org/data/speech_commands_v0.02.tar.gz"
)
DIGITS = Published(
    "spoken_digits", "free-spoken-digit-dataset", "https://github.com/Jakobovski/free-spoken-digit-dataset"
)

WORDS = (
    *("backward", "bed", "bird", "cat", "dog", "down", "eight", "five", "follow", "forward", "four", "go"),
    *("happy", "house", "learn", "left", "marvin", "nine", "no", "off", "on", "one", "right", "seven"),
    *("sheila", "six", "stop", "three", "tree", "two", "up", "visual", "wow", "yes", "zero"),
)
"""The classes of Speech Commands 0.02, in alphabetical order."""

COMMAND_NAME = re.compile(r"(?P<speaker>[^_]+)_nohash_\d+\.wav")
DIGIT_NAME = re.compile(r"(?P<digit>\d+)_(?P<speaker>.+)_(?P<index>\d+)\.wav")
TEST_INDICES = 5
"""Recordings 0 to 4 of each speaker and digit are the test set of the Free Spoken Digit Dataset."""


Features = Annotated[
    str,
    Setting("what an example is: frames of log-mel features, or the samples", options=("log_mel", "waveform")),
]
Window = Annotated[float, Setting("length of a frame, for log_mel", least=1, most=1000, unit="ms")]
Step = Annotated[float, Setting("time from one frame to the next, for log_mel", least=1, most=1000, unit="ms")]
Bands = Annotated[int, Setting("mel bands of a frame, for log_mel", least=1, most=1024)]


class Recording(NamedTuple):
    """A file with its class and its speaker."""

    file: Path
    label: int
    speaker: str


def speech_commands(
    *,
    root: Root = None,
    features: Features = "log_mel",
    window: Window = 25.0,
    step: Step = 10.0,
    bands: Bands = 40,
) -> Data:
    """Speech Commands 0.02 (Warden 2018): 84,843 and 11,005 recordings of one word at 16 kHz, 35 classes.

    Each is one second, cut or filled with zeros at the end. Test examples are those of `testing_list.txt`; those
    of `validation_list.txt` are not used; all others are for training. Groups are the speakers: the start of a
    file's name, before `_nohash_`. `features`: log_mel gives frames, float32 (98, 40) by default, normalised with
    the mean and standard deviation of each band over all training examples; waveform gives signals, int16
    (1, 16000), in [-1, 1] for a network. 2D-LRD's KWS is a subset that the paper does not describe.
    """
    folder = root_folder(root, COMMANDS.task) / COMMANDS.folder
    lists = [folder / "testing_list.txt", folder / "validation_list.txt"]
    COMMANDS.require([*lists, *(folder / word for word in WORDS)])
    testing, validation = (_listed(path) for path in lists)
    train: list[Recording] = []
    test: list[Recording] = []
    for label, word in enumerate(WORDS):
        for file in files_in(folder / word):
            match = COMMAND_NAME.fullmatch(file.name)
            if match is None:
                raise DataError(f"{file} has an unknown name: it must be SPEAKER_nohash_NUMBER.wav; remove it")
            recording = Recording(file, label, match["speaker"])
            if (name := f"{word}/{file.name}") in testing:
                test.append(recording)
            elif name not in validation:
                train.append(recording)
    log_mel = log_mel_of(features, 16_000, window, step, bands)
    return _data(COMMANDS, folder, train, test, 16_000, WORDS, 84_843, log_mel)


def spoken_digits(
    *,
    root: Root = None,
    features: Features = "log_mel",
    window: Window = 25.0,
    step: Step = 10.0,
    bands: Bands = 40,
) -> Data:
    """Free Spoken Digit Dataset (Jackson et al. 2018): 2,700 and 300 recordings of digits at 8 kHz, 10 classes.

    Test examples are those with the numbers 0 to 4, as its authors say. Groups are the six speakers, in
    alphabetical order. The recordings have 0.1 to 2.3 seconds. Here each has one second: longer ones are cut at
    the end, shorter ones filled with zeros at the end. `features`: as for `speech_commands`; log_mel gives float32
    (98, 40) by default, waveform int16 (1, 8000).
    """
    folder = root_folder(root, DIGITS.task) / DIGITS.folder / "recordings"
    DIGITS.require([folder])
    train: list[Recording] = []
    test: list[Recording] = []
    for file in files_in(folder):
        match = DIGIT_NAME.fullmatch(file.name)
        if match is None:
            raise DataError(f"{file} has an unknown name: it must be DIGIT_SPEAKER_NUMBER.wav; remove it")
        if int(match["digit"]) > 9:
            raise DataError(f"{file}: class {match['digit']} is not allowed: it must be 0 to 9")
        recording = Recording(file, int(match["digit"]), match["speaker"])
        (test if int(match["index"]) < TEST_INDICES else train).append(recording)
    log_mel = log_mel_of(features, 8_000, window, step, bands)
    return _data(DIGITS, folder, train, test, 8_000, tuple("0123456789"), 2_700, log_mel)


def _listed(path: Path) -> set[str]:
    """The entries of a list of files. Raises DataError, with file and line, for any other line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}; get it again from {COMMANDS.source}") from error
    names = set()
    for number, line in enumerate(lines, 1):
        word, _, name = line.strip().partition("/")
        if word not in WORDS or not COMMAND_NAME.fullmatch(name):
            raise DataError(
                f"{path}, line {number}: {line[:80]!r} is not a file of one of the {len(WORDS)} words, such as "
                "yes/0132a06d_nohash_1.wav"
            )
        names.add(f"{word}/{name}")
    return names


def log_mel_of(features: str, rate: int, window: float, step: float, bands: int) -> LogMel | None:
    """The features of the settings; None for the samples themselves."""
    if features not in ("log_mel", "waveform"):
        raise ConfigError(f"task.features = {features!r} is not allowed: it must be log_mel or waveform")
    return LogMel(rate, window, step, bands) if features == "log_mel" else None


def _data(
    published: Published,
    folder: Path,
    train: Sequence[Recording],
    test: Sequence[Recording],
    rate: int,
    classes: tuple[str, ...],
    full_size: int,
    log_mel: LogMel | None,
) -> Data:
    """The recordings of these files, one second of each; they are read and converted once per machine.

    With log-mel features, the mean and standard deviation of each band over all training examples are computed
    once, too, and kept in the same entry of the cache.
    """
    for recordings, what in ((train, "training"), (test, "test")):
        if not recordings:
            raise DataError(f"{folder} contains no {what} recordings; get the data from {published.source}")
    shape = log_mel.shape(rate) if log_mel else (1, rate)

    def make() -> dict[str, np.ndarray]:
        arrays = {}
        for prefix, recordings in (("train", train), ("test", test)):
            x = np.empty((len(recordings), *shape), np.float32 if log_mel else np.int16)
            for row, (file, _, _) in enumerate(recordings):
                signal = fitted(read(file, rate), rate)
                x[row] = log_mel(signal / FULL_SCALE) if log_mel else signal
            arrays[f"{prefix}_x"] = x
            arrays[f"{prefix}_y"] = np.array([label for _, label, _ in recordings], dtype=np.int64)
        _, groups = np.unique([speaker for _, _, speaker in train], return_inverse=True)
        arrays["groups"] = groups.astype(np.int64)
        if log_mel:
            whole = sound_spec(log_mel, rate, rate, len(classes), classes, (), ())
            arrays["mean"], arrays["std"] = map(np.array, normalisation(moments(arrays["train_x"], whole)))
        return arrays

    files = [(file, label) for file, label, _ in (*train, *test)]
    key = {
        "folder": str(folder),
        "files": digest(files, folder),
        "features": [log_mel.window, log_mel.step, log_mel.bands, FLOOR] if log_mel else "waveform",
    }
    arrays = cached(published.task, key, make)
    mean, std = (tuple(float(value) for value in arrays.pop(name, ())) for name in ("mean", "std"))
    spec = sound_spec(log_mel, rate, rate, len(classes), classes, mean, std)
    return Data(spec, **arrays, full_size=full_size)


def sound_spec(
    log_mel: LogMel | None,
    rate: int,
    samples: int,
    outputs: int,
    names: tuple[str, ...],
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> Spec:
    """Recordings of this many samples, to classify: frames of features, or the samples if `log_mel` is None.

    Without `mean` and `std`, samples are in [-1, 1] for a network, and features are not normalised.
    """
    if log_mel:
        inputs = Inputs(Kind.FRAMES, log_mel.shape(samples))
        reading = Reading(rate=rate, window=log_mel.window, step=log_mel.step)
        return Spec(inputs, outputs, mean=mean, std=std, names=names, reading=reading)
    return Spec(
        Inputs(Kind.SIGNAL, (1, samples)),
        outputs,
        mean=mean or (0.0,),
        std=std or (1.0,),
        scale=FULL_SCALE,
        names=names,
        reading=Reading(rate=rate),
    )
