"""What a ServerApp may use: its own folder, what is resumed, the initial model, what the operator's file names."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from confinement import support
from fedstride.errors import ConfigError
from superlink import serverapp_access
from superlink.serverapp_executor import environment


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a SuperLink, with a run and a model."""
    monkeypatch.chdir(tmp_path)
    for name in ("FEDSTRIDE_RUNS", "FEDSTRIDE_METRICS", "FEDSTRIDE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "runs/7/study").mkdir(parents=True)
    (tmp_path / "runs/7/study/config.yaml").touch()
    (tmp_path / "models").mkdir()
    (tmp_path / "models/m.safetensors").touch()
    return tmp_path


def place(server: Path, text: str = "") -> serverapp_access.ServerFolders:
    (server / "server.toml").write_text(text)
    return serverapp_access.read(server / "server.toml", server / "home")


def test_a_run_may_use_its_own_folder(server: Path) -> None:
    found = place(server).grant(8, {"overrides": "rounds=2 out=runs/7"})
    assert found.folder == server / "runs/8" and found.folder.stat().st_mode & 0o777 == 0o700
    assert found.write == (found.folder, found.scratch) and found.read == () and found.ports == ()
    assert found.environment["FEDSTRIDE_RUNS"] == str(found.folder)
    assert found.scratch.is_relative_to(server / "home")
    (found.scratch / "x").mkdir()
    place(server).release(found)
    assert not found.scratch.exists() and found.folder.exists()


def test_what_a_killed_superlink_left_is_removed_by_the_next(server: Path) -> None:
    """But not what a ServerApp still uses."""
    used, left = place(server).grant(8, {}).scratch, place(server).grant(9, {}).scratch
    folder = os.open(used, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_SH)
    place(server).tidy()
    assert used.exists() and not left.exists()
    os.close(folder)
    place(server).tidy()
    assert not used.exists()


@pytest.mark.parametrize(
    "resume", ["{runs}/7/study", "../7/study", "'{runs}/7/study'", '"{runs}/7/study"', "{runs}/8/../7/study"]
)
def test_a_resumed_run_may_use_the_folder_of_the_one_before(server: Path, resume: str) -> None:
    import shlex

    text = resume.format(runs=server / "runs")
    for config in ({"overrides": shlex.join([f"resume={text}"])}, {"resume": text.strip("'\"")}):
        assert server / "runs/7/study" in place(server).grant(9, config).write


@pytest.mark.parametrize("resume", ["/etc", "{runs}", "{runs}/7", "../models", "{runs}/7/none", "{runs}/link"])
def test_21_other_folders_are_refused(server: Path, resume: str) -> None:
    (server / "runs/link").symlink_to("/etc")
    text = resume.format(runs=server / "runs")
    with pytest.raises(ConfigError, match="is not the folder of a run below"):
        place(server).grant(9, {"overrides": f"resume={text}"})
    assert not (server / "runs/9").exists()


def test_the_last_of_several_settings_applies(server: Path) -> None:
    config = {"overrides": "resume=/etc +resume=../7/study initial=null", "initial": "x"}
    assert serverapp_access.settings(config) == {"resume": "../7/study"}


@pytest.mark.parametrize("key", ["initial", "against", "+against"])
def test_a_model_is_below_the_folder_of_models(server: Path, key: str) -> None:
    for name in ("../../models/m.safetensors", str(server / "models/m.safetensors")):
        assert place(server).grant(9, {"overrides": f"{key}={name}"}).read == (server / "models/m.safetensors",)
    (server / "models/link").symlink_to(server / "server.toml")
    for name in ("/etc/passwd", "../server.toml", "link", "none", str(server / "models")):
        with pytest.raises(ConfigError, match="is not a file below"):
            place(server).grant(9, {"overrides": f"{key}={name}"})


def test_both_models_of_a_comparison_may_be_read(server: Path) -> None:
    (server / "models/second.safetensors").touch()
    both = "rounds=0 initial=../../models/m.safetensors against=../../models/second.safetensors"
    found = place(server).grant(9, {"overrides": both}).read
    assert found == tuple(server / "models" / name for name in ("m.safetensors", "second.safetensors"))


def test_the_description_of_a_model_may_be_read_with_it(server: Path) -> None:
    folder = server / "models/tumours"
    folder.mkdir(parents=True)
    for name in ("m.safetensors", "task.json", "other.safetensors"):
        (folder / name).touch()
    start = {"initial": str(folder / "m.safetensors")}
    assert place(server).grant(9, start).read == (folder / "m.safetensors", folder / "task.json")
    (folder / "task.json").unlink()
    (folder / "task.json").symlink_to(server / "server.toml")
    assert place(server).grant(9, start).read == (folder / "m.safetensors",)


@pytest.mark.parametrize(
    "name", ["m.safetensors", "it's: mine & more, of a name with many words that is long " * 3]
)
def test_a_resumed_run_may_read_the_model_that_it_began_with(server: Path, name: str) -> None:
    """Its submission names the run alone."""
    folder = server / "runs/7/study"
    model = server / "models" / name
    model.touch()
    text = OmegaConf.to_yaml(OmegaConf.create({"seed": 1, "initial": str(model), "against": None, "rounds": 3}))
    (folder / "config.yaml").write_text(text)
    assert place(server).grant(9, {"overrides": f"resume={folder}"}).read == (model,)
    secret = server / "secret"
    secret.touch()
    (folder / "config.yaml").write_text(f"initial: {secret}\n")  # by a hostile ServerApp
    with pytest.raises(ConfigError, match=r"secret' is not a file below .*models"):
        place(server).grant(10, {"overrides": f"resume={folder}"})
    odd = (
        "[1",
        "",
        "3",
        "{a: b}",
        "2001-99-99",
        "[" * 9_000,
        "[" * 3_000_000,
        "!!python/name:os.system",
        "&a [*a]",
    )
    lines = [f"{key}: {value}" for key in ("initial", "against") for value in odd]
    for text in (*lines, "", "\0", f"x: {secret}", f"initial:{secret}", "initial", "initial: |\n  \n"):
        (folder / "config.yaml").write_text(text)
        assert place(server).grant(11, {"overrides": f"resume={folder}"}).read == ()


def test_the_operators_file(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSTRIDE_METRICS", str(server / "metrics"))
    for name in ("metrics", "data", "cache"):
        (server / name).mkdir()
    text = 'runs = "/srv/r"\nread = ["data"]\nwrite = ["cache"]\nports = [5000]\nenvironment = ["WANDB"]\n'
    found = place(server, text)
    assert (found.runs, found.models) == (Path("/srv/r"), server / "models")
    assert found.read == (server / "data",)
    assert found.write == (server / "cache", server / "metrics")
    assert (found.ports, found.passed, found.confined) == ((5000,), ("WANDB",), support().possible)
    assert not place(server, 'confine = "off"').confined


def test_the_cache_is_shared_if_the_operator_says_so(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSTRIDE_CACHE", str(server / "cache"))
    own = place(server).grant(9, {})
    assert own.environment["FEDSTRIDE_CACHE"] == str(own.scratch / "cache")
    (server / "cache").mkdir()
    shared = place(server, f'write = ["{server / "cache"}"]').grant(10, {})
    assert shared.environment["FEDSTRIDE_CACHE"] == str(server / "cache")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("run = 'x'", "unknown key 'run'. Did you mean 'runs'"),
        ("runs = 1", "runs = 1 must be a path"),
        ("read = '/srv'", "must be a list of paths"),
        ("ports = [0]", "must be a list of ports"),
        ("ports = [true]", "must be a list of ports"),
        ("environment = [1]", "must be a list of names"),
        ("confine = true", "must be one of demanded, if-possible, off"),
        ("runs = ", "cannot be read"),
        ("read = ['none']", "none does not exist, and ServerApps may use it (read): make it"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(server: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        place(server, text)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_21_variables_that_may_be_secrets_stay_with_the_superlink() -> None:
    given = {"PATH": "p", "AWS_SECRET": "s", "FEDSTRIDE_STATE": "x", "FEDSTRIDE_TOKEN_FILE": "t", "FLWR_HOME": "h",
             "LC_ALL": "C", "WANDB": "w", "FLWR_TELEMETRY_ENABLED": "0", "LD_PRELOAD": "l"}  # fmt: skip
    assert environment(given, ("WANDB",)).keys() == {
        "PATH", "FEDSTRIDE_STATE", "LC_ALL", "WANDB", "FLWR_TELEMETRY_ENABLED"
    }  # fmt: skip
