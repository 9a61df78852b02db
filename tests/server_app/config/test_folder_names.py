"""Names of run folders: one visible folder, whatever the user, a sweep or a part's name contains."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstride.errors import ConfigError
from lab.engine.sweep_combinations import plan
from server_app.config.checks import MAX_FOLDER_NAME, is_folder_name
from server_app.config.compose import compose
from server_app.config.grammar import quote
from server_app.records.run_folder import folder_name

OUTSIDE = ["../../x", "..", ".", "/etc/x", "a/b", "a/../../b", "a\\b", "~root", ".hidden", "-rf"]
UNREADABLE = ["a\nb", "a\tb", "a\x00b", "a\x1b[31mb", "a\u202eb", " a", "a ", "x" * 201, "\u00e4" * 101]


@pytest.mark.parametrize("name", [*OUTSIDE, *UNREADABLE])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="the name of one folder") as caught:
        compose([f"name={quote(name)}"])
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "name", ["a", "a b", "seed=1,2", "x" * 200, "\u00e4" * 100, "\u96ea", "a..b", "50%", "$x"]
)
def test_a_name_of_one_folder_is_kept(name: str) -> None:
    assert compose([f"name={quote(name)}"]).name == name
    assert folder_name(name) == name


@given(st.text(min_size=0, max_size=400))
def test_a_made_name_is_a_name_and_stays_the_same(text: str) -> None:
    made = folder_name(text)
    assert is_folder_name(made)
    assert folder_name(made) == made
    assert made == text or not is_folder_name(text)


@given(st.text(alphabet="ab", min_size=1, max_size=3), st.integers(MAX_FOLDER_NAME + 1, 400))
def test_long_texts_keep_different_names(end: str, length: int) -> None:
    assert folder_name("x" * length + end) != folder_name("x" * length + end + "c")


def test_the_folders_of_a_sweep_are_directly_in_its_folder(tmp_path: Path) -> None:
    """A swept text becomes a part of the name."""
    key = "client.exclude"
    swept = f"{key}=['../../x'],['a\\b'],['{'y' * 300}']"
    jobs = plan([f"out='{tmp_path}'", "client=fednlr", swept]).jobs
    assert [job.folder.parent for job in jobs] == [tmp_path] * 3
    assert all(is_folder_name(str(job.config.name)) for job in jobs)


def test_a_run_of_a_sweep_is_named_by_key_and_value(tmp_path: Path) -> None:
    jobs = plan([f"out='{tmp_path}'", "client.lr=0.05,0.1", "seed=1,2"]).jobs
    assert [str(job.config.name) for job in jobs] == [
        f"mnist5k-dirichlet-fednnnn-sgd-seed{seed}-lr={lr}" for lr in ("0.05", "0.1") for seed in (1, 2)
    ]
