"""A run that is signed at a desk: what its text says, and what a server that would send something else says."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from desk import SMALL, play
from typer.testing import CliRunner

from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.messages.app_signatures import decode
from fedstride.messages.signed_runs import DAY, SignedTerms, Terms, load, to_sign
from lab.cli.main import app
from lab.deployment.app_signing import new_key
from lab.deployment.run_signing import RunSigner
from server_app import preparation, signed_messages
from server_app.config.compose import compose
from server_app.config.schema import Config

GIVEN = {"overrides": "rounds=2", "submission": "anna@desk 1f"}


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    new_key(folder / "study")
    return folder / "study"


def config(*overrides: str) -> Config:
    return compose([*SMALL, "rounds=2", *overrides])


def signed(key: Path, *overrides: str, **options: Any) -> SignedTerms:
    return load(RunSigner(key, **options).sign(config(*overrides), b"bundle", GIVEN))


def test_a_run_is_signed_with_all_that_its_messages_say(key: Path, tmp_path: Path) -> None:
    found = signed(key, "seed=7", "evaluate_clients=true", days=3)
    public = load_ssh_public_key(key.with_name("study.pub").read_bytes())
    assert isinstance(public, Ed25519PublicKey)
    public.verify(decode(found.signature), to_sign(found.body))
    said = found.terms
    assert said.app == hashlib.sha256(b"bundle").hexdigest() and dict(said.run_config) == GIVEN
    assert (said.expires - said.signed_at, said.nodes, said.resumes, said.rounds) == (3 * DAY, (), False, 2)
    assert [form.name for form in said.forms] == ["roll call", "training", "evaluation"]
    assert said.messages == 1 + 2 + 2
    for form in said.forms:
        assert form.fixed[wire.SEED] == 7 and form.fixed[wire.RUN] == said.run
    assert signed(key).terms.nonce != said.nonce and signed(key).terms.run != said.run


def test_a_run_that_only_measures_is_signed_without_training(key: Path, tmp_path: Path) -> None:
    folder = play(tmp_path, *SMALL, "rounds=1").folder
    measuring = (
        "rounds=0",
        f"initial='{folder / 'model.safetensors'}'",
        "evaluate_clients=true",
        "strategy=scaffold",
    )
    said = signed(key, *measuring).terms
    assert [form.name for form in said.forms] == ["roll call", "evaluation"]
    assert (said.rounds, said.messages) == (0, 2)
    assert said.forms[1].varies[wire.SERVER_ROUND].most == 0
    signed_messages.check(said, preparation.prepare(config(*measuring)))


@pytest.mark.parametrize("overrides", [(), ("strategy=scaffold",), ("strategy=feddisco", "cohort=2")])
def test_the_server_finds_its_own_messages_in_what_was_signed(key: Path, overrides: tuple[str, ...]) -> None:
    signed_messages.check(signed(key, *overrides).terms, preparation.prepare(config(*overrides)))


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("client.lr=0.02", "client.lr"), ("seed=3", "seed"), ("holdout=0.3", "holdout"),
        ("rounds=3", "what may vary"),
        ("model=svm", "model"), ("strategy=scaffold", "strategy-name"),
        ("evaluate_clients=true", "evaluation: not signed"),
    ],
)  # fmt: skip
def test_a_server_that_would_send_something_else_says_so(key: Path, override: str, named: str) -> None:
    said = signed(key).terms
    with pytest.raises(ConfigError, match="nodes would refuse it") as caught:
        signed_messages.check(said, preparation.prepare(config(override)))
    assert named in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_resume_is_signed_as_one_and_names_the_word_of_its_run(key: Path, tmp_path: Path) -> None:
    folder = play(tmp_path, "rounds=1").folder
    resumed = compose([f"resume='{folder}'", "rounds=2"])
    prepared = preparation.prepare(resumed)
    said = load(RunSigner(key).sign(resumed, b"bundle", GIVEN)).terms
    assert prepared.checkpoint is not None and (said.resumes, said.run) == (True, prepared.checkpoint.run)
    signed_messages.check(said, prepared)
    for other, named in (
        (replace(said, resumes=False), "as a new one"),
        (replace(said, run="0" * 16), "the word"),
    ):
        with pytest.raises(ConfigError, match=named):
            signed_messages.check(other, prepared)
    with pytest.raises(ConfigError, match="as a new one, or as one that is resumed"):
        signed_messages.check(said, preparation.prepare(config()))


def test_a_run_that_is_not_signed_has_no_terms(key: Path) -> None:
    assert signed_messages.signed_terms({}) is None and signed_messages.signed_terms({"signed_run": ""}) is None
    found = signed_messages.signed_terms({"signed_run": signed(key).dump()})
    assert isinstance(found, Terms)
    with pytest.raises(ConfigError, match="not a signed run"):
        signed_messages.signed_terms({"signed_run": "x"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--nodes", "x"], "--nodes and --expires are only allowed with --key"),
        (["--expires", "3"], "--nodes and --expires are only allowed with --key"),
        (["--key", "KEY", "resume=/nowhere"], "the folder to resume is not here"),
        (["--key", "KEY", "--expires", "31"], "--expires 31 is not allowed: it must be from 1 to 30 days"),
        (["--key", "KEY", "--expires", "0"], "--expires 0 is not allowed"),
        (["--key", "KEY", "--nodes", "/nowhere"], "--nodes /nowhere cannot be read"),
        (["--key", "/nowhere"], "/nowhere is not a key to sign with"),
    ],
)
def test_options_that_are_not_allowed(key: Path, options: list[str], said: str) -> None:
    given = [str(key) if each == "KEY" else each for each in options]
    done = CliRunner().invoke(app, ["submit", "--address", "127.0.0.1:1", "--insecure", *given, *SMALL])
    assert isinstance(done.exception, ConfigError) and said in str(done.exception)
