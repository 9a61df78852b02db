"""Runs from Python: the bits, folders and errors of the command, and a process that stays as it is."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import random
import shutil
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from desk import table, weights
from folders import config, make

import fedstride
from fedstride.errors import ConfigError, FedstrideError, RunError
from fedstride.parts import USER_PARTS
from fedstride.processes.forks import children
from fedstride.tasks.models import numerics
from lab.python import calls, user_process

SMALL: dict[str, Any] = {
    "model": "mlp",
    "clients": 4,
    "client.local_steps": 3,
    "client.batch_size": 20,
    "rounds": 2,
}
TYPED = [f"{key}={value}" for key, value in SMALL.items()]


@pytest.fixture(autouse=True)
def _folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each run is in a folder of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSTRIDE_RUNS", raising=False)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> fedstride.Result:
    return fedstride.run(SMALL, strategy="fednnnn", out=tmp_path_factory.mktemp("runs"))


# ---------------------------------------------------------------- as the command


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "typed"),
    [
        ({"strategy": "fednnnn+fedlws", "cohort": 2}, ["strategy=fednnnn+fedlws", "cohort=2"]),
        ({"method": "fedprox+fednlr", "workers": 2}, ["method=fedprox+fednlr", "workers=2"]),
        ({"partition": "iid", "seed": 5, "workers": 0}, ["partition=iid", "seed=5", "workers=0"]),
    ],
)
def test_a_run_is_that_of_the_command(
    call: Callable[..., Any], tmp_path: Path, keys: Mapping[str, Any], typed: list[str]
) -> None:
    """Also where torch draws and computes otherwise in the user's own code."""
    torch.manual_seed(3)
    torch.set_default_dtype(torch.float64)
    np.random.seed(3)
    try:
        with torch.no_grad():
            mine = fedstride.run(SMALL, **keys)
    finally:
        torch.set_default_dtype(torch.float32)
    assert call("run", *TYPED, *typed, "name=typed", "--no-compare", "-q")[0] == 0
    other = tmp_path / "runs/typed"
    assert weights(mine.folder) == weights(other)
    assert table(mine.folder) == table(other)
    assert mine.folder.parent == other.parent
    assert {path.name for path in mine.folder.iterdir()} == {path.name for path in other.iterdir()}
    cards = [
        (folder / "MODEL_CARD.md").read_text().partition("## Membership")[2] for folder in (mine.folder, other)
    ]
    assert "AUROC" in cards[0] and cards[0].partition("\n## ")[0] == cards[1].partition("\n## ")[0]
    settings = [(folder / "config.yaml").read_text().splitlines() for folder in (mine.folder, other)]
    assert [line for line in settings[0] if line not in settings[1]] == ["name: null"]


@pytest.mark.slow
def test_a_run_has_its_records_as_frames(result: fedstride.Result) -> None:
    status = json.loads((result.folder / "status.json").read_text())
    assert result.state == "completed" and result.metric == "test/accuracy"
    assert list(result.rounds.index) == [0, 1, 2]
    assert result.figures.loc["test/accuracy", "final"] == status["final"]["test/accuracy"]
    assert result.figures.loc["test/accuracy", "best"] == status["best"]["test/accuracy"]
    assert result.best_round == status["best"]["round"]
    assert result.rounds.loc[2, "test/loss"] == status["final"]["test/loss"]
    assert [tuple(row) for row in result.clients[["round", "client"]].to_numpy()] == [
        (number, client) for number in (1, 2) for client in range(4)
    ]
    assert set(result.clients["status"]) == {"used"}
    assert result.config.rounds == 2 and result.config.strategy.name == "fednnnn"


@pytest.mark.slow
def test_a_run_has_its_model(result: fedstride.Result) -> None:
    x = np.zeros((3, 1, 28, 28), np.uint8)
    np.testing.assert_array_equal(result.model.outputs(x), fedstride.load(result.folder).outputs(x))
    np.testing.assert_array_equal(result.best_model.outputs(x), fedstride.load(result.folder, "best").outputs(x))


@pytest.mark.slow
def test_a_notebook_shows_a_summary_and_an_image(result: fedstride.Result) -> None:
    shown = result._repr_html_()
    assert "fednnnn, test accuracy" in shown and str(result.folder) in shown
    assert repr(result).startswith("<fednnnn, test accuracy")
    for kind in ("accuracy", "norms"):
        assert result.plot(kind)._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="unknown plot 'curve'"):
        result.plot("curve")


@pytest.mark.slow
def test_names_are_written_as_text_in_html(tmp_path: Path) -> None:
    made = fedstride.run({**SMALL, "rounds": 1}, name="<b>&x")
    assert "&lt;b&gt;&amp;x" in made._repr_html_() and "<b>&x" not in made._repr_html_()


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("settings", "keys", "said"),
    [
        ({"client.momentun": 0.9}, {}, "unknown key 'client.momentun'. Did you mean"),
        ({}, {"client_lr": 0.1}, "unknown key 'client_lr'."),
        ({}, {"round": 3}, "unknown key 'round'. Did you mean 'rounds'"),
        ({}, {"strategy": "fednnn"}, "unknown strategy 'fednnn'. Did you mean 'fednnnn'"),
        ({"client.lr": "fast"}, {}, "'client.lr=fast' is not allowed: "),
        ({"client.lr": -1}, {}, "client.lr = -1.0 is not allowed: "),
        ({}, {"rounds": 2.5}, "'rounds=2.5' is not allowed: "),
        ({}, {"seed": [1, 2]}, "seed has several values: fedstride.sweep"),
        ({}, {"objective": ["plain", "moon"]}, "objective has several values: fedstride.sweep"),
        ({"rounds": 2}, {"rounds": 2}, "rounds is given twice"),
        ({"client": {"lr": 0.1}}, {}, "client cannot be a dict"),
        ({"a b": 1}, {}, "'a b=1' is not an override"),
        ({}, {"out": "${oc.env:PATH}"}, "is not allowed: ${...} may only name another key"),
        ({}, {"parts": "nowhere.py"}, "parts = 'nowhere.py' does not exist"),
        ({}, {"resume": "nowhere"}, "resume = 'nowhere' is not a run folder"),
    ],
)
def test_what_is_not_allowed_is_refused_in_one_line_before_any_work(
    tmp_path: Path, settings: dict[str, Any], keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        fedstride.run(settings, **keys)
    assert said in str(error.value) and "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_sweep_refuses_before_its_first_run(tmp_path: Path) -> None:
    for keys in ({"client.lr": [0.1, -1.0]}, {"seed": []}, {"name": ["a", "b"]}, {"client.threads": [1, 2]}):
        with pytest.raises(ConfigError) as error:
            fedstride.sweep({**SMALL, **keys})
        assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=r"^jobs = 0 is not allowed"):
        fedstride.sweep(SMALL, seed=[1, 2], jobs=0)
    assert not list(tmp_path.iterdir())


def test_folders_without_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^folders = .* is not allowed"):
        fedstride.results()
    for path in ("nowhere", tmp_path):
        with pytest.raises(ConfigError):
            fedstride.results(path)
    with pytest.raises(ConfigError, match="is not a run folder"):
        fedstride.resume(tmp_path)


# ---------------------------------------------------------------- sweeps


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> fedstride.Results:
    return fedstride.sweep(
        SMALL, strategy=["fedavg", "fednnnn"], seed=[1, 2], out=tmp_path_factory.mktemp("sweep")
    )


@pytest.mark.slow
def test_the_table_of_a_sweep_is_that_of_the_command(swept: fedstride.Results, call: Callable[..., Any]) -> None:
    folder = swept.folders[0].parent
    for options, typed in (
        ({}, []),
        ({"best": True}, ["--best"]),
        ({"metric": "test/loss", "last": 2}, ["--metric", "test/loss", "--last", "2"]),
        ({"target": 0.3}, ["--target", "0.3"]),
    ):
        code, out, err = call("table", folder, "--format", "csv", *typed)
        assert code == 0
        assert [f"note: {note}" for note in swept.table(**options).attrs["notes"]] == err.splitlines()  # type: ignore[arg-type]
        pd.testing.assert_frame_equal(
            swept.table(**options).astype(object).fillna(""),  # type: ignore[arg-type]
            pd.read_csv(io.StringIO(out)).astype(object).fillna(""),
            check_dtype=False,
        )
    assert len(swept) == 4 and not swept.failed
    assert repr(swept).splitlines()[0] == call("table", folder)[1].splitlines()[0]
    assert "fednnnn" in swept._repr_html_()
    (won, *_) = [note for note in swept.table().attrs["notes"] if "test accuracy" in note]
    assert won in repr(swept) and won not in swept.table(target=0.3).attrs["notes"]
    with pytest.raises(ConfigError, match="by = test/loss chooses the value of a key: name it"):
        swept.table(by="test/loss")
    assert swept.plot()._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


@pytest.mark.parametrize("by", [None, "test/loss"])
def test_values_are_chosen_by_another_metric(tmp_path: Path, call: Callable[..., Any], by: str | None) -> None:
    def losses(lr: float) -> Callable[[int], dict[str, float]]:
        return lambda number: {"test/loss": lr}

    means = {("fedavg", 0.1): 0.5, ("fedavg", 0.2): 0.6, ("fednnnn", 0.1): 0.9, ("fednnnn", 0.2): 0.8}
    for (method, lr), mean in means.items():
        for seed in (1, 2, 3):
            given = config(f"strategy={method}", f"client.lr={lr}", f"seed={seed}")
            values = [mean * (1 + seed / 100), None]
            make(tmp_path / f"{method}-{lr}-{seed}", given, values, extra=losses(lr))
    table = fedstride.results(tmp_path).table("test/accuracy", tune="client.lr", by=by)
    assert table["chosen"].tolist() == (["lr=0.2", "lr=0.1"] if by is None else ["lr=0.1", "lr=0.1"])
    won = [note for note in table.attrs["notes"] if note.startswith("fednnnn won against fedavg")]
    assert len(won) == (by is not None)  # else chosen by the figures that are compared
    typed = ["--metric", "test/accuracy", "--tune", "client.lr", *([] if by is None else ["--by", by])]
    err = call("table", tmp_path, *typed)[2]
    assert [f"note: {note}" for note in table.attrs["notes"]] == err.splitlines()


@pytest.mark.slow
def test_a_run_of_a_sweep_has_the_bits_of_a_single_one(swept: fedstride.Results) -> None:
    alone = fedstride.run(SMALL, strategy="fednnnn", seed=2)
    (same,) = [each for each in swept if each.config.seed == 2 and each.config.strategy.name == "fednnnn"]
    assert weights(alone.folder) == weights(same.folder)


@pytest.mark.slow
def test_a_sweep_goes_on_with_more_values(swept: fedstride.Results, tmp_path: Path) -> None:
    """And with none that is left."""
    shutil.copytree(swept.folders[0].parent, tmp_path / "sweep")
    keys = {**SMALL, "out": tmp_path / "sweep"}
    files = [path for path in (tmp_path / "sweep").rglob("*") if path.is_file()]
    before = [path.stat().st_mtime_ns for path in files]
    with pytest.raises(ConfigError, match="exists and is not overwritten: choose another out=FOLDER, or resume"):
        fedstride.sweep(keys, strategy=["fedavg", "fednnnn"], seed=[1, 2])
    found = fedstride.sweep(keys, strategy=["fedavg", "fednnnn"], seed=[1, 2, 3], resume=True)
    assert len(found) == 6 and not found.failed and "4 of 6 runs are complete already" in found.notes
    assert len(fedstride.sweep(keys, strategy=["fedavg", "fednnnn"], seed=[1, 2], resume=True)) == 4
    assert [path.stat().st_mtime_ns for path in files] == before


@pytest.mark.slow
def test_runs_of_folders_are_read_again(swept: fedstride.Results) -> None:
    again = fedstride.results(swept.folders[0].parent)
    assert again.folders == sorted(swept.folders)
    assert again[:2].folders == again.folders[:2]
    pd.testing.assert_frame_equal(again.table().sort_values("mean"), swept.table().sort_values("mean"))


FAILING = """
import numpy as np
from typing import Annotated
from fedstride import FedAvg, Setting, part

@part(strategy="failing")
class Failing(FedAvg):
    def __init__(self, *, after: Annotated[int, Setting("round", least=0)] = 9, **options):
        super().__init__(**options)
        self.after, self.count = after, 0

    def rule(self, sent, cohort, state):
        self.count += 1
        if self.count > self.after:
            raise ArithmeticError("it fails here")
        return super().rule(sent, cohort, state)
"""


@pytest.mark.slow
def test_a_failed_run_is_named_and_the_others_remain(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    with pytest.warns(UserWarning, match="1 of 2 runs are not completed: see .failed"):
        found = fedstride.sweep({**SMALL, "strategy.after": [1, 9]}, strategy="failing", parts="failing.py")
    ((name, reason),) = found.failed.items()
    assert "after=1" in name and "it fails here" in reason
    assert sorted(each.state for each in found) == ["completed", "failed"]
    assert "it fails here" in repr(found) and "it fails here" in found._repr_html_()
    with pytest.raises(RunError, match=r"none of 2 runs is completed; the first: .*it fails here"):
        fedstride.sweep({**SMALL, "strategy.after": 0}, strategy="failing", parts="failing.py", seed=[1, 2])


# ---------------------------------------------------------------- stopped, and gone on


class Press:
    """An observer that sends this process a signal, as Ctrl-C does, after the first reply of a round."""

    def __init__(self, server_round: int, number: int = signal.SIGINT) -> None:
        self.server_round, self.number, self.pressed = server_round, number, False

    def replied(self, server_round: int, done: int, total: int) -> None:
        if server_round == self.server_round and not self.pressed:
            self.pressed = True
            os.kill(os.getpid(), self.number)

    def round_done(self, done: object) -> None: ...


@pytest.fixture
def press(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Adds an observer to the next runs."""

    def add(observer: Any) -> None:
        run = calls.session.run

        def observed(*args: Any, observers: Any, **options: Any) -> Any:
            return run(*args, observers=[observer, *observers], **options)

        monkeypatch.setattr(calls.session, "run", observed)

    return add


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_keeps_the_checkpoint_and_says_how_to_go_on(
    press: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    keys = {**SMALL, "rounds": 3, "workers": workers}
    whole = fedstride.run(keys, name="whole")
    with monkeypatch.context():
        press(Press(2))
        with pytest.raises(KeyboardInterrupt) as error:
            fedstride.run(keys, name="part")
    monkeypatch.undo()
    folder = whole.folder.with_name("part")
    assert str(error.value) == f"the run was stopped; go on with: fedstride.resume({str(folder)!r})"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert fedstride.results(folder)[0].state == "interrupted"
    assert not [thread for thread in threading.enumerate() if thread.name == "pool"]
    again = fedstride.resume(folder)
    assert weights(again.folder) == weights(whole.folder) and again.state == "completed"
    longer = fedstride.resume(folder, rounds=4)
    assert list(longer.rounds.index) == [0, 1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_before_the_first_round_says_so(press: Callable[[Any], None]) -> None:
    press(Press(1))
    with pytest.raises(KeyboardInterrupt, match="no round was completed, so start it again; its folder: "):
        fedstride.run(SMALL)


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_a_run_without_checkpoints_says_so(press: Callable[[Any], None]) -> None:
    press(Press(2))
    with pytest.raises(
        KeyboardInterrupt, match=r"it has no checkpoint \(checkpoint_every=0\), so start it again; its"
    ):
        fedstride.run({**SMALL, "rounds": 3, "checkpoint_every": 0})


@pytest.mark.parametrize(
    ("stopped", "call"),
    [
        ("compose", lambda: fedstride.run(SMALL)),
        ("compose", lambda: fedstride.resume("part")),
        ("plan", lambda: fedstride.sweep(SMALL, seed=[1, 2])),
        ("whole_comparison.asked", lambda: fedstride.compare(SMALL)),
    ],
)
def test_ctrl_c_before_anything_was_begun_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stopped: str, call: Callable[[], Any]
) -> None:
    def press(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"lab.python.calls.{stopped}", press)
    with pytest.raises(KeyboardInterrupt, match="stopped before any run had begun"):
        call()
    assert not list(tmp_path.iterdir())


def test_ctrl_c_while_packages_are_imported_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def press(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lab.public_names.import_module", press)
    with pytest.raises(KeyboardInterrupt, match="stopped before any run had begun"):
        fedstride.run  # noqa: B018


def test_a_model_is_shown_in_short(result: fedstride.Result) -> None:
    shown = repr(result.model)
    assert shown.startswith("<mlp, ") and " parameters, task mnist5k: " in shown and len(shown) < 200
    assert str(result.folder) in shown


@pytest.mark.slow
def test_sigterm_closes_the_run_and_then_acts_as_before(press: Callable[[Any], None], tmp_path: Path) -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    press(Press(2, signal.SIGTERM))
    try:
        with pytest.raises(RunError, match="ended by SIGTERM"):
            fedstride.run(SMALL, name="ended")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert got == [signal.SIGTERM]
    assert fedstride.results(tmp_path / "runs/ended")[0].state == "terminated"


# ---------------------------------------------------------------- the process


def state() -> dict[str, Any]:
    """All of this process that a run could leave changed."""
    flower = logging.getLogger("flwr")
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "python": random.getstate(),
        "numpy": str(np.random.get_state()),
        "torch": torch.get_rng_state().tolist(),
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "grad": torch.is_grad_enabled(),
        "exact": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "errors": np.geterr(),
        "log": (flower.level, list(flower.handlers), list(flower.filters), flower.propagate),
        "root log": (logging.getLogger().level, list(logging.getLogger().handlers)),
        "signals": {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)},
        "parts": {group: dict(parts) for group, parts in USER_PARTS.items()},
        "threads here": [thread.name for thread in threading.enumerate()],
        "processes": children(os.getpid()),
        "files": len(os.listdir("/proc/self/fd")),
    }


@pytest.mark.slow
@pytest.mark.parametrize("keys", [{"workers": 0}, {"workers": 2}, {"client.threads": 2}, {"task": "none"}])
def test_a_run_leaves_the_process_as_it_was(keys: dict[str, Any]) -> None:
    torch.set_num_threads(2)
    np.seterr(under="warn")
    try:
        before = state()
        if "task" in keys:
            with pytest.raises(ConfigError):
                fedstride.run({**SMALL, **keys})
        else:
            fedstride.run({**SMALL, **keys})
        assert state() == before
    finally:
        np.seterr(under="ignore")
        torch.set_num_threads(1)


def test_torch_s_precision_on_a_gpu_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on a GPU sets switches that the caller's own networks use too; they can be set without a GPU."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

    def switches() -> list[Any]:
        precisions = [switch.fp32_precision for switch in numerics._switches()]
        fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
        return [*precisions, fill, torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled()]

    with numerics.restored():
        for of_convolutions in numerics._switches()[1:]:
            of_convolutions.fp32_precision = numerics.TF32  # as torch begins
        torch.use_deterministic_algorithms(False)
        before = switches()
        with user_process._torch():
            numerics.repeatable(torch.device("cuda"))
            assert switches() == [numerics.FULL] * 3 + [False, False, True] != before
        assert switches() == before


@pytest.mark.slow
def test_two_runs_of_one_process_have_the_same_bits() -> None:
    one, two = (fedstride.run(SMALL, strategy="fedlws", client="fednlr") for _ in range(2))
    assert one.folder != two.folder
    assert weights(one.folder) == weights(two.folder) and table(one.folder) == table(two.folder)


@pytest.mark.slow
def test_a_file_with_parts_that_was_edited_is_read_again(tmp_path: Path) -> None:
    """Under the same names; also a partition, which is drawn only once for the same settings."""
    source = (
        "import numpy as np\nfrom torch import nn\nfrom fedstride import part\n\n"
        '@part(partition="dealt")\ndef dealt(source, clients, seed):\n'
        "    return np.array_split(np.arange(len(source))[::STEP], clients)\n\n"
        '@part(model="tiny")\nclass Tiny(nn.Sequential):\n    def __init__(self, inputs, outputs):\n'
        "        super().__init__(nn.Flatten(), nn.Linear(784, WIDE), nn.ReLU(), nn.Linear(WIDE, outputs))\n"
    )
    keys = {**SMALL, "model": "tiny", "partition": "dealt", "rounds": 1}
    rows = []
    for step, wide in ((1, 3), (2, 4), (5, 6)):
        (tmp_path / "mine.py").write_text(source.replace("STEP", str(step)).replace("WIDE", str(wide)))
        made = fedstride.run(keys, parts="mine.py")
        rows.append(int(made.clients["num-examples"].sum()))
        assert made.model.network[1].out_features == wide  # type: ignore[index]
    assert rows == [4000, 2000, 800]


@pytest.mark.slow
def test_it_works_in_a_thread_and_beside_a_running_loop() -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(fedstride.run({**SMALL, "workers": 2})))
    thread.start()
    thread.join()

    async def cell() -> fedstride.Result:
        return fedstride.run({**SMALL, "workers": 2})

    async def beside() -> fedstride.Result:
        return await asyncio.to_thread(fedstride.run, {**SMALL, "workers": 2})

    found += [asyncio.run(cell()), asyncio.run(beside())]
    assert len({weights(each.folder) for each in found}) == 1 and len(found) == 3


@pytest.mark.slow
def test_a_second_run_at_the_same_time_is_refused(press: Callable[[Any], None]) -> None:
    said: list[str] = []

    class Another:
        def replied(self, server_round: int, done: int, total: int) -> None:
            try:
                fedstride.run(SMALL)
            except FedstrideError as error:
                said.append(str(error))

        def round_done(self, done: object) -> None: ...

    press(Another())
    fedstride.run(SMALL)
    assert set(said) == {
        "another run of this process is going on: wait until it ends, or make both with fedstride.sweep"
    }


# ---------------------------------------------------------------- the line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def stderr_of(stream: io.StringIO, **keys: Any) -> str:
    """What a run prints to this standard error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr", stream)
        fedstride.run(SMALL, **keys)
    return stream.getvalue()


@pytest.mark.slow
def test_a_terminal_has_one_line_that_changes_in_place() -> None:
    text = stderr_of(Terminal())
    assert text.count("\n") == 1 and text.endswith("\n") and "\x1b" not in text
    shown = text.split("\r")
    assert "round 2 of 2, test accuracy" in text and "fednnnn, test accuracy" in shown[-1]
    assert len({len(line.rstrip("\n")) for line in shown[1:]}) == 1  # each covers the one before


@pytest.mark.slow
def test_without_a_terminal_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    assert stderr_of(Terminal(), quiet=True) == ""
    assert stderr_of(io.StringIO()) == ""
    assert capfd.readouterr() == ("", "")
