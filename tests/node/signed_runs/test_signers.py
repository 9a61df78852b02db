"""The keys of a policy's signers and members, and the command with which a person approves a run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from signing import KEY, signed_text, signer_of, terms_of
from typer.testing import CliRunner

from fedstride.errors import ConfigError
from fedstride.messages.key_fingerprints import fingerprint, fingerprints
from fedstride.messages.signed_runs import MessageForm, load
from lab.deployment.app_signing import new_key
from node import own_files
from node.commands import add_to
from node.policy.policy_file import ASK, OFF, Policy, read_policy
from node.signed_runs.approvals import ApprovalBasis, Approvals, waiting
from node.signed_runs.signers import members_of, signers_of


def public(name: str = "") -> str:
    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    return f"{key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()} {name}\n"


def test_the_keys_that_a_policy_names_below_its_own_folder(tmp_path: Path) -> None:
    new_key(tmp_path / "keys/study")
    (tmp_path / "nodes.pub").write_text("# of the study\n" + public("one") + "\n" + public("two"))
    path = tmp_path / "policy.toml"
    path.write_text('members = "nodes.pub"\napprove = "ask"\n[signers]\n"the study" = "keys/study.pub"\n')
    policy = read_policy(path)
    (signer,) = signers_of(policy)
    assert signer.name == "the study" and policy.approve == ASK
    assert signer.id in (tmp_path / "keys/study.yaml").read_text()
    members = members_of(policy)
    assert members is not None and len(members) == 2
    assert Policy().approve == OFF and members_of(Policy()) is None and signers_of(Policy()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('approve = "ask"', "members and approve are for signed runs; name who signs them below [signers]"),
        ('members = "nodes.pub"', "members and approve are for signed runs"),
        ('approve = "yes"\n[signers]\na = "a.pub"', "approve = 'yes' is not allowed: it must be 'ask' or 'off'"),
        ('members = 1\n[signers]\na = "a.pub"', "members = 1 is not allowed: it must be the path of a file"),
        ('signers = "a.pub"', "[signers] must name files of public keys"),
        ("[signers]\na = 1", "[signers] must name files of public keys"),
        ('[signers]\na = ""', "[signers] must name files of public keys"),
    ],
)
def test_a_policy_that_names_no_keys(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_policy(tmp_path / "policy.toml")
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("what", ["missing", "private", "of a node", "no text", "of others"])
def test_a_file_that_is_no_key_of_a_signer(tmp_path: Path, what: str) -> None:
    new_key(tmp_path / "study")
    path = tmp_path / "a.pub"
    contents = {"private": (tmp_path / "study").read_bytes(), "of a node": public().encode(), "no text": b"\xff"}
    if what != "missing":
        path.write_bytes(contents.get(what, (tmp_path / "study.pub").read_bytes()))
        path.chmod(0o666 if what == "of others" else 0o600)
    with pytest.raises(ConfigError, match="'a'") as caught:
        signers_of(Policy(signers={"a": path}))
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no key"),
        ("# nothing\n\n", "has no key"),
        ("ssh-ed25519 AAAA x", "line 1: it is not the public key of a node"),
        ("ecdsa-sha2-nistp384", "line 1: it is not the public key of a node"),
        (public() + "ecdsa-sha2-nistp384 ?", "line 2: it is not a public key of OpenSSH's form"),
    ],
)
def test_a_file_that_lists_no_keys_of_nodes(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "nodes.pub").write_text(text)
    with pytest.raises(ConfigError) as caught:
        fingerprints(tmp_path / "nodes.pub", "--nodes")
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_fingerprint_is_that_of_openssh(tmp_path: Path) -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("this machine has no ssh-keygen")
    (tmp_path / "key.pub").write_text(line := public("a name"))
    said = subprocess.run(["ssh-keygen", "-lf", tmp_path / "key.pub"], capture_output=True, text=True, check=True)
    assert said.stdout.split()[1] == fingerprint(line)


# ---------------------------------------------------------------- fedstride node-approve


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    return tmp_path


def command(*arguments: str, answer: str = "") -> tuple[int, str]:
    import typer

    app = typer.Typer()
    add_to(app)
    done = CliRunner().invoke(app, ["node-approve", *arguments], input=answer)
    if isinstance(done.exception, ConfigError):
        return 2, str(done.exception)
    return done.exit_code, done.output


def test_a_person_approves_a_run_after_a_question(home: Path) -> None:
    folder = home / own_files.APPROVALS
    assert command() == (0, "no run waits for an approval\n")
    forms = (MessageForm("roll call", "query", {"task.name": "blood"}, {}, {}),)
    found, approvals = load(signed_text(terms_of(forms))), Approvals(folder, ApprovalBasis(b"", ()))
    assert "fedstride node-approve" in approvals.waits(signer_of(KEY), found)
    (asking,) = waiting(folder)
    assert command()[1].startswith(f"{asking.id}  'study', 3 rounds")
    code, said = command(asking.id, answer="n\n")
    assert code == 1 and "'task.name' = 'blood'" in said and "not approved" in said
    assert approvals.waits(signer_of(KEY), found)
    assert command(asking.id, answer="y\n")[0] == 0
    assert approvals.waits(signer_of(KEY), found) == ""
    code, said = command(asking.id, "--yes")
    assert code == 2 and "no run waits for the approval" in said
    assert command("../../etc/passwd", "--yes")[0] == 2
