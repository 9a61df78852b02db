"""The arguments of `fedstride node`: what is read, and one line for each that is not allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedstride.errors import ConfigError
from lab.deployment.app_signing import new_key
from lab.deployment.certificates import make
from node.node_config import READ_BY_THE_NODE
from node.policy.policy_file import Policy
from node.settings import GONE, NodeSettings, read

AT = ("--superlink", "fl.example.org:9092")


def settings(*given: str) -> NodeSettings:
    return read([*AT, *given], {"FLWR_HOME": "/srv/node"})


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    make(tmp_path, names=["fl.example.org"], nodes=["north"])
    return tmp_path


def test_all_options(certificates: Path) -> None:
    new_key(certificates / "study")
    (certificates / "policy.toml").write_text('confine = "demanded"\nmemory_gib = 2.5\nlandlock = 6\n')
    (certificates / "data.toml").write_text('path = "/usr/bin"\n')
    found = settings(
        *("--root-certificates", str(certificates / "ca.crt")),
        *("--auth-supernode-private-key", str(certificates / "north")),
        *("--trusted-entities", str(certificates / "study.yaml")),
        *(
            "--node-config",
            'name="north" partition-id=3 share=0.5 ok=true '
            f'data="{certificates / "data.toml"}" policy="{certificates / "policy.toml"}"',
            "--wait",
        ),
        *("--proxy", "http://proxy:3128", "--pass-environment", "A,B"),
    )
    assert found.place.address == "fl.example.org:9092" and found.place.proxy == "http://proxy:3128"
    assert found.place.root_certificates == (certificates / "ca.crt").read_bytes() and found.key is not None
    assert found.config == {"name": "north", "partition-id": 3, "share": 0.5, "ok": True, "data": READ_BY_THE_NODE}
    assert found.site is not None and found.site.path == Path("/usr/bin")
    assert found.wait and found.passed == ("A", "B") and found.trusted is not None and len(found.trusted) == 1
    assert found.policy == Policy("demanded", 6, 2.5) and found.policy.limits.memory == 5 * 2**29
    assert (found.log, found.status) == (Path("/srv/node/node-log.jsonl"), Path("/srv/node/node-status.json"))


def test_the_defaults() -> None:
    found = settings()
    assert not found.place.insecure and found.key is None and found.trusted is None and not found.wait
    assert found.place.proxy is None and found.place.root_certificates is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--superlink", "fl.example.org"), "must be HOST:PORT"),
        (("--superlink", "https://fl.example.org:1"), "must be HOST:PORT"),
        (("--superlink", "fl.example.org:99999"), "must be HOST:PORT"),
        (("--root-certificates", "/nothing"), "cannot be read: No such file"),
        (("--root-certificates", __file__), "is not a certificate in PEM"),
        (("--auth-supernode-private-key", "/nothing"), "cannot be read: No such file"),
        (("--auth-supernode-private-key", __file__), "is not a private key"),
        (("--trusted-entities", "/nothing"), "cannot be read: No such file"),
        (("--insecure", "--root-certificates", __file__), "exclude each other"),
        (("--insecure", "--auth-supernode-private-key", __file__), "exclude each other"),
        (("--node-config", "a=1 b"), "'b' is not of the form KEY=VALUE"),
        (("--node-config", "a=[1]"), "a = [1] is not allowed"),
        (("--node-config", 'data="/srv/x.csv"'), "is not allowed: name a file of the site's own"),
        (("--node-config", "clipping-norm=1.0"), "demands are in the policy; write clipping_norm = 1.0"),
        (("--node-config", "membership=true"), "demands are in the policy; write membership = true into"),
        (("--proxy", "proxy:3128"), "must be a URL"),
        (("--proxy", "socks5://proxy:1"), "must be a URL"),
        (("--nothing",), "unrecognized arguments: --nothing; see fedstride node --help"),
        *(((option, "1"), f"has no option {option}: {reason}") for option, reason in GONE.items()),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_what_is_not_allowed_is_one_line(given: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        settings(*given)
    assert said in str(raised.value) and "\n" not in str(raised.value)


def test_the_address_is_required() -> None:
    with pytest.raises(ConfigError, match="required: --superlink"):
        read([])


@pytest.mark.parametrize(
    ("policy", "seen"), [("", False), ("membership = false", False), ("membership = true", True)]
)
def test_apps_learn_whether_the_policy_allows_the_membership_test(tmp_path: Path, policy: str, seen: bool) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(policy)
    assert settings("--node-config", f'policy="{file}"').config.get("membership", False) is seen
