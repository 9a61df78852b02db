"""Log-mel features, and the readers of sound: the real bytes where they are at hand, else files in the layout."""

from __future__ import annotations

import contextlib
import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from real_data import REAL, load, real, refused

from fedstride.errors import ConfigError, DataError
from fedstride.tasks.datasets import sound
from fedstride.tasks.forms import wav
from fedstride.tasks.forms.logmel import LogMel
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.registry import MODELS

pytestmark = pytest.mark.usefixtures("forgotten_data")
CPU = torch.device("cpu")


# ---------------------------------------------------------------- log-mel features


def by_hand(signal: np.ndarray, rate: int, window: int, step: int, bands: int, fft: int) -> np.ndarray:
    """The definition, sum by sum: a discrete Fourier transform and triangles between their ends."""
    mels = [2595 * np.log10(1 + rate / 2 / 700) * k / (bands + 1) for k in range(bands + 2)]
    rows = []
    for start in range(0, len(signal) - window + 1, step):
        powers = []
        for k in range(fft // 2 + 1):
            t = np.arange(window)
            frame = signal[start : start + window] * np.sin(np.pi * t / window) ** 2
            powers.append(abs(np.sum(frame * np.exp(-2j * np.pi * k * t / fft))) ** 2)
        row = []
        for low, peak, high in zip(mels, mels[1:], mels[2:], strict=False):
            energy = 0.0
            for k, power in enumerate(powers):
                m = 2595 * np.log10(1 + k * rate / fft / 700)
                energy += power * max(0.0, min((m - low) / (peak - low), (high - m) / (high - peak)))
            row.append(np.log(energy + 1e-6))
        rows.append(row)
    return np.array(rows)


def test_the_features_are_those_of_the_definition() -> None:
    signal = np.random.default_rng(0).uniform(-1, 1, 450)
    features = LogMel(8000, window=20, step=10, bands=8)
    found = features(signal)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_hand(signal, 8000, 160, 80, 8, 256), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("hertz", [300, 1000, 3000, 7000])
def test_a_tone_is_in_its_band(hertz: int) -> None:
    features = LogMel(16_000)
    found = features(np.sin(2 * np.pi * hertz * np.arange(16_000) / 16_000))
    assert found.shape == features.shape(16_000) == (98, 40)
    peaks = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 42)[1:-1] / 2595) - 1)
    assert set(found.argmax(1).tolist()) == {int(np.abs(peaks - hertz).argmin())}


def test_silence_is_the_floor() -> None:
    assert np.allclose(LogMel(8000)(np.zeros(8000)), np.log(1e-6))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"bands": 128}, "task.bands = 128 .* bands contain no frequency"),
        ({"window": 0.1}, "task.window = 0.1 .* at least 0.25 ms"),
        ({"step": 0.05}, "task.step = 0.05 .* at least 0.125 ms"),
        ({"bands": 0}, "task.bands = 0 .* at least 1"),
    ],
)
def test_features_that_are_not_possible(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        LogMel(8000, **settings)


def test_a_signal_shorter_than_a_window() -> None:
    with pytest.raises(ConfigError, match=r"task.window = 25.0 .* at most 12.5 ms"):
        LogMel(8000)(np.zeros(100))


# ---------------------------------------------------------------- spoken digits, the real bytes


@pytest.mark.slow
@real
def test_spoken_digits() -> None:
    found = load("spoken_digits", REAL)
    assert found.spec.inputs == Inputs(Kind.FRAMES, (98, 40))
    assert np.bincount(found.train_y).tolist() == [90] * 10
    assert np.bincount(found.test_y).tolist() == [30] * 10
    assert found.groups is not None
    assert np.bincount(found.groups).tolist() == [150] * 6
    assert found.subset == "a subset: 900 of 2,700 training examples"
    assert isinstance(found.train_x, np.memmap) and found.train_x.dtype == np.float32
    x, _ = Examples(found.train_x, found.train_y, found.spec, device=CPU).batch(np.arange(900))
    assert x.mean((0, 1)).abs().max() < 1e-3
    assert (x.std((0, 1)) - 1).abs().max() < 1e-3
    first = wav.read(REAL / "free-spoken-digit-dataset" / "recordings" / "0_george_10.wav", 8000)
    expected = LogMel(8000)(wav.fitted(first, 8000) / 32768)  # the first file of the training set, by name
    assert np.array_equal(found.train_x[0], expected)


@real
@pytest.mark.parametrize(
    ("model", "settings"),
    [("lstm", {"width": 8}), ("mlp", {"width": 8}), ("svm", {}), ("mlp3", {"width": 8})],
)
def test_the_networks_take_the_features(model: str, settings: dict[str, int]) -> None:
    found = load("spoken_digits", REAL)
    x, y = Examples(found.test_x, found.test_y, found.spec, device=CPU).batch(np.arange(5))
    assert (x.dtype, x.shape, y.dtype) == (torch.float32, (5, 98, 40), torch.int64)
    logits = MODELS.make(MODELS.config(model)(**settings), found.spec.inputs, found.spec.outputs)(x)
    assert logits.shape == (5, 10) and torch.isfinite(logits).all()


@real
@pytest.mark.slow
def test_the_lstm_learns_recordings_that_end_with_silence() -> None:
    """With the state after the last frame, the loss stays at ln 10 = 2.3: half of each example is silence."""
    found = load("spoken_digits", REAL, window=50.0, step=25.0)
    examples = Examples(found.train_x, found.train_y, found.spec, device=CPU)
    torch.manual_seed(1)
    model = MODELS.make(MODELS.config("lstm")(), found.spec.inputs, found.spec.outputs)
    losses = []
    for part in np.random.default_rng(1).integers(0, len(found.train_y), (200, 20)):
        x, y = examples.batch(part)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        for weights, gradient in zip(
            model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
        ):
            weights.data -= 0.5 * gradient
        losses.append(loss.item())
    assert np.mean(losses[:20]) > 2.2 and np.mean(losses[-20:]) < 1.7


@real
def test_the_samples_themselves() -> None:
    found = load("spoken_digits", REAL, features="waveform")
    assert found.spec.inputs == Inputs(Kind.SIGNAL, (1, 8000))
    assert found.train_x.dtype == np.int16
    x, _ = Examples(found.test_x, found.test_y, found.spec, device=CPU).batch(np.arange(300))
    assert x.shape == (300, 1, 8000)
    assert 0.5 < float(x.abs().max()) <= 1
    assert torch.equal(x, torch.from_numpy(found.test_x / np.float32(32768)))
    network = MODELS.make(MODELS.config("cnn1d")(width=4), found.spec.inputs, found.spec.outputs)
    assert network(x[:3]).shape == (3, 10)


# ---------------------------------------------------------------- WAV files


def write(path: Path, samples: Any, rate: int = 16_000, channels: int = 1, width: int = 2) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(np.asarray(samples, {1: np.uint8, 2: "<i2"}[width]).tobytes())


def test_a_wav_file_gives_its_samples(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", [1, -32768, 32767])
    found = wav.read(tmp_path / "a.wav", 16_000)
    assert found.dtype == np.int16
    assert found.tolist() == [1, -32768, 32767]
    assert wav.fitted(found, 5).tolist() == [1, -32768, 32767, 0, 0]
    assert wav.fitted(found, 2).tolist() == [1, -32768]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"rate": 8000}, "has 8000 Hz, 1 channels and 16 bits, but must have 16000 Hz, 1 channel and 16 bits"),
        ({"channels": 2}, "2 channels"),
        ({"width": 1}, "8 bits"),
        ({"samples": []}, "has no samples"),
    ],
)
def test_a_wav_file_of_another_form(tmp_path: Path, made: dict[str, Any], said: str) -> None:
    path = tmp_path / "a.wav"
    write(path, **{"samples": [1, 2, 3, 4], **made})
    with pytest.raises(DataError, match=f"{path}.*{said}"):
        wav.read(path, 16_000)


FIVE = struct.pack("<5h", 1, -32768, 32767, 4, 5)
PLAIN = struct.pack("<HHIIHH", 1, 1, 16_000, 32_000, 2, 16)
LONGER = struct.pack("<HHIIHHHHI", 0xFFFE, 1, 16_000, 32_000, 2, 16, 22, 16, 4)
GUID = bytes.fromhex("0100000000001000800000aa00389b71")


def chunk(name: bytes, content: bytes, size: int | None = None) -> bytes:
    return name + struct.pack("<I", len(content) if size is None else size) + content


def riff(*chunks: bytes, size: int | None = None) -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body) if size is None else size) + body


WHOLE = {
    "an odd chunk with its byte": riff(
        chunk(b"fmt ", PLAIN), chunk(b"LIST", b"five!") + b"\0", chunk(b"data", FIVE)
    ),
    "an odd chunk without": riff(chunk(b"fmt ", PLAIN), chunk(b"LIST", b"five!"), chunk(b"data", FIVE)),
    "an odd chunk first": riff(chunk(b"JUNK", b"x"), chunk(b"fmt ", PLAIN), chunk(b"data", FIVE)),
    "an empty chunk": riff(chunk(b"PAD ", b""), chunk(b"fmt ", PLAIN), chunk(b"data", FIVE)),
    "a long description": riff(chunk(b"fmt ", LONGER + GUID), chunk(b"data", FIVE)),
    "a description with a rest": riff(chunk(b"fmt ", PLAIN + b"\0\0"), chunk(b"data", FIVE)),
    "chunks after the samples": riff(chunk(b"fmt ", PLAIN), chunk(b"data", FIVE), chunk(b"id3 ", b"name")),
    "from a pipe": riff(chunk(b"fmt ", PLAIN), chunk(b"data", FIVE, 0xFFFFFFFF), size=0xFFFFFFFF),
    "from a pipe of another program": riff(chunk(b"fmt ", PLAIN), chunk(b"data", FIVE, 0x7FFFFFFF - 36)),
    "from a pipe, half a sample more": riff(chunk(b"fmt ", PLAIN), chunk(b"data", FIVE + b"x", 0xFFFFFFFF)),
    "a wrong length of the file": riff(chunk(b"fmt ", PLAIN), chunk(b"data", FIVE), size=0),
}


@pytest.mark.parametrize("what", WHOLE)
def test_wav_files_as_programs_write_them(what: str, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(WHOLE[what])
    assert wav.read(tmp_path / "a.wav", 16_000).tolist() == [1, -32768, 32767, 4, 5]


NOT_READ = {
    "floating-point numbers": (
        riff(chunk(b"fmt ", b"\3\0" + PLAIN[2:]), chunk(b"data", FIVE)), "samples of kind 3 "
    ),
    "another long description": (
        riff(chunk(b"fmt ", LONGER + b"\3" + GUID[1:]), chunk(b"data", FIVE)), "samples of kind 65534 "
    ),
    "a description that ends": (riff(chunk(b"fmt ", PLAIN[:14]), chunk(b"data", FIVE)), "not a complete WAV file"),
    "no description": (riff(chunk(b"data", FIVE)), "does not describe its samples"),
    "no samples": (riff(chunk(b"fmt ", PLAIN)), "it ends too early"),
    "another file": (b"\x89PNG" + bytes(60), "does not begin as one"),
}  # fmt: skip


@pytest.mark.parametrize("what", NOT_READ)
def test_files_that_are_no_such_recordings(what: str, tmp_path: Path) -> None:
    content, said = NOT_READ[what]
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(DataError, match=f"{tmp_path / 'a.wav'} .*{said}"):
        wav.read(tmp_path / "a.wav", 16_000)


@given(content=st.binary(max_size=120), begins=st.booleans())
def test_any_bytes_are_samples_or_a_reason(content: bytes, begins: bool, tmp_path_factory: Any) -> None:
    file = tmp_path_factory.mktemp("sounds") / "a.wav"
    file.write_bytes(riff(content) if begins else content)
    with contextlib.suppress(DataError):
        wav.read(file, 16_000)


@pytest.mark.parametrize("cut", [0, 10, 30, 44, 47, 51])
def test_a_truncated_wav_file(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.wav"
    write(path, [1, 2, 3, 4])
    assert len(path.read_bytes()) == 52
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match=f"{path} is (not a complete WAV file|truncated)") as caught:
        wav.read(path, 16_000)
    assert "\n" not in str(caught.value)


def test_a_file_of_other_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"ID3" + bytes(100))
    with pytest.raises(DataError, match="is not a complete WAV file"):
        wav.read(tmp_path / "a.wav", 16_000)
    with pytest.raises(DataError, match=r"b.wav cannot be read: No such file"):
        wav.read(tmp_path / "b.wav", 16_000)


# ---------------------------------------------------------------- Speech Commands, files in the layout


def write_commands(root: Path) -> Path:
    """Of each word one example of the speakers b and a for training, one for validation, one for testing."""
    folder = root / "speech_commands_v0.02"
    for label, word in enumerate(sound.WORDS):
        for speaker, length in (("bb01", 16_000), ("aa02", 9_000), ("cc03", 20_000), ("dd04", 16_000)):
            write(folder / word / f"{speaker}_nohash_0.wav", np.full(length, label + 1))
    write(folder / "_background_noise_" / "pink_noise.wav", np.ones(20))
    (folder / "validation_list.txt").write_text("".join(f"{word}/cc03_nohash_0.wav\n" for word in sound.WORDS))
    (folder / "testing_list.txt").write_text("".join(f"{word}/dd04_nohash_0.wav\n" for word in sound.WORDS))
    return folder


def test_speech_commands(tmp_path: Path) -> None:
    write_commands(tmp_path)
    found = load("speech_commands", tmp_path, features="waveform")
    assert len(sound.WORDS) == found.spec.outputs == 35
    assert list(sound.WORDS) == sorted(set(sound.WORDS))
    assert found.spec.inputs == Inputs(Kind.SIGNAL, (1, 16_000))
    assert found.train_y.tolist() == [label for label in range(35) for _ in range(2)]
    assert found.test_y.tolist() == list(range(35))
    assert found.train_x[:, 0, 0].tolist() == (found.train_y + 1).tolist()
    assert (found.train_x[:, 0, -1] == 0).tolist() == [True, False] * 35  # aa02 is filled with zeros
    assert found.groups is not None
    assert found.groups.tolist() == [0, 1] * 35
    assert found.subset == "a subset: 70 of 84,843 training examples"
    frames = load("speech_commands", tmp_path, window=30.0, step=20.0, bands=20)
    assert frames.spec.inputs == Inputs(Kind.FRAMES, (49, 20))
    assert len(frames.spec.mean) == len(frames.spec.std) == 20


def test_a_layout_that_is_not_complete(tmp_path: Path) -> None:
    folder = write_commands(tmp_path)
    (folder / "yes").rename(folder / "_yes")
    assert f"{folder / 'yes'} missing; get the data from http" in refused("speech_commands", tmp_path)
    (folder / "_yes").rename(folder / "yes")
    listed = folder / "testing_list.txt"
    listed.write_text("yes/dd04_nohash_0.wav\nyeah/dd04_nohash_0.wav\n")
    assert f"{listed}, line 2: 'yeah/dd04_nohash_0.wav'" in refused("speech_commands", tmp_path)
    listed.write_text("")
    assert "contains no test recordings" in refused("speech_commands", tmp_path)
    (folder / "yes" / "notes.txt").write_text("x")
    assert "notes.txt has an unknown name" in refused("speech_commands", tmp_path)
    listed.unlink()
    assert f"{listed} missing" in refused("speech_commands", tmp_path)


def test_a_damaged_recording_is_named(tmp_path: Path) -> None:
    folder = write_commands(tmp_path)
    file = folder / "cat" / "aa02_nohash_0.wav"
    file.write_bytes(file.read_bytes()[:-2])
    assert f"{file} is truncated: it has 8999 of 9000 samples" in refused("speech_commands", tmp_path)


def test_settings_of_the_features_are_checked_before_files_are_read(tmp_path: Path) -> None:
    write_commands(tmp_path)
    assert "task.bands = 400 is not allowed" in refused("speech_commands", tmp_path, bands=400)
    with pytest.raises(
        ConfigError, match=r"task.features = 'mfcc' is not allowed: it must be log_mel or waveform"
    ):
        sound.speech_commands(root=str(tmp_path), features="mfcc")


def test_names_of_spoken_digits(tmp_path: Path) -> None:
    folder = tmp_path / "free-spoken-digit-dataset" / "recordings"
    for name in ("3_theo_4", "3_theo_5", "7_anna_maria_12", "7_anna_maria_0"):
        write(folder / f"{name}.wav", [1, 2], rate=8000)
    found = load("spoken_digits", tmp_path, features="waveform")
    assert (found.train_y.tolist(), found.test_y.tolist()) == ([3, 7], [3, 7])
    assert found.groups is not None
    assert found.groups.tolist() == [1, 0]
    write(folder / "12_theo_5.wav", [1], rate=8000)
    assert "12_theo_5.wav: class 12 is not allowed: it must be 0 to 9" in refused("spoken_digits", tmp_path)
    (folder / "12_theo_5.wav").rename(folder / "theo.wav")
    assert "theo.wav has an unknown name" in refused("spoken_digits", tmp_path)
    for file in folder.iterdir():
        file.unlink()
    assert "contains no training recordings" in refused("spoken_digits", tmp_path)
