"""What a SuperNode that trusts certain keys does with an app: Flower's own loop (1.39), with and without ours."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import alone
import pytest
import yaml
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.cli.build import build_fab_from_files
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supernode import start_client_internal as loop
from flwr.supernode.nodestate import NodeStateFactory
from typer.testing import CliRunner

from fedstride import wire
from fedstride.errors import ConfigError
from fedstride.flower import identity
from lab.cli.main import app
from lab.deployment.signing import new_key, sign
from lab.node.passages import _Passages
from node.accounts import Accounts
from node.journal import Journal, read
from node.trust import check_trusted

PROJECT = f'{alone.PROJECT}[tool.flwr.app.config]\nsignature = ""\n'
BUNDLE, _ = build_fab_from_files({"pyproject.toml": PROJECT.encode(), "acts.py": b"app = None"})


class Node:
    """A SuperNode's state, to which a SuperLink sends one message of a run."""

    def __init__(self, trusted: Path, log: Path) -> None:
        self.state = NodeStateFactory(objectstore_factory=ObjectStoreFactory()).state()
        self.state.set_node_id(1)
        self.trusted = yaml.safe_load(trusted.read_text())
        self.log = log

    def receives(self, signature: str, *, ours: bool = True, verifications: dict[str, str] | None = None) -> Any:
        """The error with which the node answers the message; None if it is to be processed."""
        identity.set_identity(7, 1)
        content = RecordDict({"do": ConfigRecord({"do": 1})})
        message = Message(content, dst_node_id=1, message_type=MessageType.TRAIN)
        message.metadata.__dict__["_message_id"] = message.object_id
        objects = {key: each.deflate() for key, each in get_all_nested_objects(message).items()}
        fab = Fab(hashlib.sha256(BUNDLE).hexdigest(), BUNDLE, verifications or {})
        run = Run.create_empty(7)
        run.fab_id, run.fab_version, run.fab_hash, run.series_id = "test/acts", "1.0.0", fab.hash_str, 7
        run.primary_task_type = TaskType.SERVER_APP
        run.override_config = {"signature": signature}
        pull: Callable[..., Any] = loop._pull_and_store_message
        if ours:
            passages = _Passages(loop, lambda: Accounts(Journal(self.log)))
            passages.before(lambda: None)()
            pull = passages.into(pull)
        pull(
            state=self.state,
            object_store=self.state.object_store,
            node_config={},
            receive=lambda: (message, get_object_tree(message)),
            get_run=lambda run_id: run,
            get_fab=lambda fab_hash, run_id: fab,
            pull_object=lambda run_id, each: objects[each],
            confirm_message_received=lambda run_id, message_id: None,
            trusted_entities=self.trusted,
        )
        replies = self.state.get_messages(is_reply=True)
        if replies:
            assert not self.state.get_tasks() and self.state.get_fab(fab.hash_str) is None
            return replies[0].error
        assert [task.run_id for task in self.state.get_tasks()] == [7]
        assert self.state.get_fab(fab.hash_str).content == BUNDLE
        return None


@pytest.fixture
def key(tmp_path: Path) -> Path:
    new_key(tmp_path / "study")
    return tmp_path / "study"


@pytest.fixture
def node(key: Path, tmp_path: Path) -> Node:
    return Node(key.with_name("study.yaml"), tmp_path / "log")


def test_a_signed_app_is_processed(node: Node, key: Path) -> None:
    assert node.receives(sign(BUNDLE, key).dump()) is None


def test_without_a_signature_nothing_of_the_app_is_kept(node: Node) -> None:
    error = node.receives("")
    assert error.code == wire.REFUSED
    assert error.reason.endswith("is not signed, and this node runs signed apps only; see fedstride sign")
    (line,) = read(node.log).rows
    assert line["event"] == "received" and line["app_hash"] == hashlib.sha256(BUNDLE).hexdigest()


def test_another_apps_signature_is_refused(node: Node, key: Path) -> None:
    error = node.receives(sign(BUNDLE + b"!", key).dump())
    assert error.code == wire.REFUSED and error.reason.endswith("it was altered")


def test_flowers_own_supernode_refuses_all_apps_from_folders(node: Node, key: Path) -> None:
    """As docs/deployment.md says: a SuperLink gives it signatures of Flower's app store only."""
    error = node.receives(sign(BUNDLE, key).dump(), ours=False)
    assert (error.code, error.reason) == (7, "The FAB could not be verified.")


@pytest.mark.parametrize("ours", [True, False])
def test_an_app_of_flowers_store_is_left_to_flower(node: Node, key: Path, tmp_path: Path, ours: bool) -> None:
    new_key(tmp_path / "stranger")
    by_stranger = {"valid_license": "Valid", **sign(BUNDLE, tmp_path / "stranger").for_flower}
    assert node.receives("", ours=ours, verifications=by_stranger).code == 7
    other = Node(key.with_name("study.yaml"), tmp_path / "other")
    by_a_trusted_key = {"valid_license": "Valid", **sign(BUNDLE, key).for_flower}
    assert other.receives("", ours=ours, verifications=by_a_trusted_key) is None


# ---------------------------------------------------------------- the list of trusted keys


def test_a_list_of_several_keys(key: Path, tmp_path: Path) -> None:
    new_key(tmp_path / "second")
    both = tmp_path / "both.yaml"
    both.write_text(key.with_name("study.yaml").read_text() + (tmp_path / "second.yaml").read_text())
    check_trusted(["--superlink", "x:1", "--trusted-entities", str(both)])
    check_trusted(["--superlink", "x:1"])
    for name in ("study", "second"):
        assert Node(both, tmp_path / f"log-{name}").receives(sign(BUNDLE, tmp_path / name).dump()) is None


EC = "ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhBA=="


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is not a list of trusted keys in YAML"),
        ("- a\n- b\n", "it is not a list of trusted keys in YAML"),
        ("{}", "it names no key, and a node without trusted keys runs every app"),
        ("a: [", "cannot be read: "),
        ("fpk_1: not a key", "the entry 'fpk_1' is not an id with an Ed25519 key"),
        (f"fpk_1: {EC}", "the entry 'fpk_1' is not an id with an Ed25519 key"),
        ("fpk_1: 3", "the entry 'fpk_1' is not an id with an Ed25519 key"),
    ],
)
def test_a_list_of_another_form_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    """The node does not start."""
    (tmp_path / "list.yaml").write_text(text)
    done = CliRunner().invoke(app, ["node", "--trusted-entities", str(tmp_path / "list.yaml")])
    assert isinstance(done.exception, ConfigError)
    assert said in str(done.exception) and "\n" not in str(done.exception)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        check_trusted([f"--trusted-entities={tmp_path / 'nothing'}"])


def test_two_ways_to_sign_at_once_are_refused(tmp_path: Path) -> None:
    given = ["--signature", str(tmp_path / "a"), "--signing-key", str(tmp_path / "b")]
    done = CliRunner().invoke(app, ["submit", "tls", "rounds=1", *given])
    assert isinstance(done.exception, ConfigError) and "choose one of them" in str(done.exception)
