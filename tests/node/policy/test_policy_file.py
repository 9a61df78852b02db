"""The files `policy.toml` and `data.toml` of a node, and one line for each that is not allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedstride.errors import ConfigError
from node.policy.policy_file import Policy, read_data, read_policy


def test_without_a_policy_apps_are_confined_where_that_is_possible() -> None:
    assert read_policy(None) == Policy() and Policy().confine == "if-possible"


def test_a_policy(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(
        'confine = "demanded"\nlandlock = 6\nmemory_gib = 1.5\nprocesses = 20\ndisk_gib = 1\nfiles = 70\n'
        "free_gib = 2\n"
    )
    found = read_policy(path)
    assert (found.confine, found.landlock) == ("demanded", 6)
    assert found.limits == (3 * 2**29, 20, 2**30, 70, 2**31)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('confine = "yes"', "confine = 'yes' is not allowed: it must be one of demanded, if-possible, off"),
        ("confine = true", "confine = True is not allowed"),
        ('confin = "off"', "it has no key 'confin'; allowed are confine"),
        ("[limits]\nmemory = 1", "it has no key 'limits'"),
        ("memory_gib = 0", "memory_gib = 0 is not allowed: it must be a number from 0.1"),
        ("memory_gib = nan", "memory_gib = nan is not allowed"),
        ("memory_gib = inf", "memory_gib = inf is not allowed"),
        ('processes = "many"', "processes = 'many' is not allowed: it must be a whole number from 4"),
        ("processes = 1.5", "processes = 1.5 is not allowed"),
        ("files = true", "files = True is not allowed"),
        ("open_files = 3", "open_files = 3 is not allowed: it must be a whole number from 64 to"),
        ("memory_gib = 1e12", "memory_gib = 1000000000000.0 is not allowed"),
        ("disk_gib = 1e-12", "disk_gib = 1e-12 is not allowed"),
        ("landlock = 8", "landlock = 8 is not allowed: it must be a whole number from 1 to 7"),
        ("landlock = 1000", "landlock = 1000 is not allowed"),
        ("confine =", "is not TOML"),
        ("signed = 1", "signed = 1 is not allowed: it must be true or false"),
        ('membership = "yes"', "membership = 'yes' is not allowed: it must be true or false"),
        ('tasks = "own_table"', "tasks = 'own_table' is not allowed: it must be a list of names"),
        ("metrics = [3]", "metrics = [3] is not allowed"),
        (
            "holdout = [0.1, 0.2, 0.3, 0.4]",
            "holdout = [0.1, 0.2, 0.3, 0.4] is not allowed: it must be a list of one",
        ),
        ("holdout = [1]", "holdout = [1] is not allowed"),
        ("holdout = [true]", "holdout = [True] is not allowed"),
        ("holdout = []", "holdout = [] is not allowed"),
        ("holdout = [0.1, 0.2]\nfolds = true", "folds = true needs one share above 0 in holdout, which has 2"),
        ("holdout = [0]\nfolds = true", "folds = true needs one share above 0 in holdout, which has 0"),
        ("folds = 5", "folds = 5 is not allowed: it must be true or false"),
        ('hours = "8-17"', "hours = '8-17' is not allowed"),
        ('hours = "08:00-08:00"', "hours = '08:00-08:00' is not allowed"),
        ('hours = "24:00-08:00"', "is not allowed"),
        ("min_rows = 0", "min_rows = 0 is not allowed: it must be a whole number from 1"),
        ("min_rows = 1.5", "min_rows = 1.5 is not allowed"),
        ("noise_multiplier = 1", "noise_multiplier needs a clipping_norm"),
        ("clipping_norm = 1\nnoise_multiplier = 1e-9", "noise_multiplier = 1e-09 is not allowed"),
        ("clipping_norm = 0", "clipping_norm = 0 is not allowed"),
        ("x" + "[" * 100_000, "is not TOML"),
    ],
)
def test_a_policy_that_is_not_allowed(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_policy(path)
    assert said in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy file .* cannot be read: No such file"):
        read_policy(tmp_path / "policy.toml")
    (tmp_path / "bytes.toml").write_bytes(b"confine = \xff")
    with pytest.raises(ConfigError, match="is not TOML"):
        read_policy(tmp_path / "bytes.toml")
    (tmp_path / "data.toml").mkdir()
    with pytest.raises(ConfigError, match=r"data file .* cannot be read: Is a directory"):
        read_data(tmp_path / "data.toml")


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_files_that_others_may_change(tmp_path: Path, mode: int) -> None:
    for name, text in (("policy.toml", 'confine = "off"'), ("data.toml", 'path = "/usr"')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    for read in (lambda: read_policy(tmp_path / "policy.toml"), lambda: read_data(tmp_path / "data.toml")):
        with pytest.raises(ConfigError, match=r"can be changed by others; .*chmod go-w"):
            read()


def test_what_a_policy_allows(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(
        'hours = "22:15-06:00"\nsigned = true\ntasks = ["own_table"]\nmetrics = ["auroc"]\nrecords = []\n'
        "min_rows = 5\nholdout = [0, 0.3]\nclipping_norm = 1\nnoise_multiplier = 0.5\ncpu_seconds = 60\n"
    )
    found = read_policy(path)
    assert (found.hours, found.signed, found.tasks) == ((22 * 60 + 15, 360), True, ("own_table",))
    assert (found.metrics, found.records, found.min_rows, found.holdout) == (("auroc",), (), 5, (0.0, 0.3))
    assert found.protection == {"clipping-norm": 1, "noise-multiplier": 0.5}
    assert (Policy().min_rows, Policy().holdout, Policy().protection) == (20, (0.2,), {})


TABLE = """
[columns]
age = { least = 0, most = 120 }
label = ["no", "yes"]
"""


def test_data_that_are_named_by_a_file_of_the_site(tmp_path: Path) -> None:
    """A path in it is relative to the file, wherever the node was started. The secret is made once."""
    (tmp_path / "patients.csv").write_text("age,label\n1,0\n")
    file = tmp_path / "data.toml"
    file.write_text(f'path = "patients.csv"\ntargets = ["label"]\n{TABLE}')
    found = read_data(file)
    assert found.path == tmp_path / "patients.csv" and found.dictionary is not None
    assert found.key == (tmp_path / "data.secret").read_bytes() and len(found.key) == 32
    assert (tmp_path / "data.secret").stat().st_mode & 0o777 == 0o600
    assert read_data(file).key == found.key
    with pytest.raises(ConfigError, match=r"node-config data = .* is not allowed: name a file of the site's own"):
        read_data(tmp_path / "patients.csv")


def test_the_secret_is_for_this_user_only(tmp_path: Path) -> None:
    file = tmp_path / "data.toml"
    file.write_text('path = "."\nsecret = "key"\n')
    read_data(file)
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(
        ConfigError, match=r"the secret of the hold-out .*key has mode 0640, so others can use it: chmod 600"
    ):
        read_data(file)
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "key").rename(tmp_path / "real")
    (tmp_path / "key").symlink_to(tmp_path / "real")
    with pytest.raises(ConfigError, match="but a link or another thing"):
        read_data(file)
    (tmp_path / "key").unlink()
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(ConfigError, match="has 5 bytes; it must have at least 32"):
        read_data(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it must name the data"),
        ("path = 3", "it must name the data"),
        ('path = ""', "it must name the data"),
        ('path = "nowhere.csv"', "cannot be used (No such file"),
        ('pth = "x"', "it has no key 'pth'; allowed are path"),
        ('path = "."\nsplit_seed = -1', "split_seed = -1 is not allowed"),
        ('path = "."\nsplit_seed = 1\nsecret = "x"', "split_seed = 1 is not allowed"),
        ('path = "."\nid = 3', "id = 3 is not allowed"),
        ('path = "."\ntargets = ["x"]', "targets needs [columns]"),
        ('path = "."\n[columns]', "[columns] must name at least one column"),
        ('path = "."\n[columns]\na = "number"', "targets must be a list of columns"),
        ('path = "."\ntargets = ["b"]\n[columns]\na = "number"', "targets: 'b' is not in [columns]"),
        ('path = "."\ntargets = ["a"]\n[columns]\na = "text"', "'a' cannot be predicted"),
        ('path = "."\ntargets = ["a"]\n[columns]\na = { empty = true }', "'a' cannot be predicted"),
        ('path = "."\ntargets = []\n[columns]\na = "numbr"', "column 'a': 'numbr' is not allowed: it must be"),
        ('path = "."\ntargets = []\n[columns]\na = { lest = 1 }', "column 'a': 'lest' is not allowed here"),
        ('path = "."\ntargets = []\n[columns]\na = { least = 2, most = 1 }', "least not above most"),
        ('path = "."\ntargets = []\n[columns]\na = { least = "x" }', "least and most must be numbers"),
        ('path = "."\ntargets = []\n[columns]\na = ["x", "x"]', "categories must be different"),
        ('path = "."\ntargets = []\n[columns]\na = ["x|y"]', "without |"),
        ('path = "."\ntargets = []\n[columns]\na = { empty = 1 }', "empty = 1 must be true or false"),
        ('path = "."\n[columns]\na = "number"\n[examples]\nkind = "image"', "exclude each other"),
        ('path = "."\n[examples]\nkind = "picture"', "[examples] must have a kind: one of image"),
        ('path = "."\n[examples]\nkind = "image"\nclasses = 2', "[examples]: shape is missing"),
        ('path = "."\n[examples]\nkind = "text"', "must have one of classes, labels, values"),
        ('path = "."\n[examples]\nkind = "text"\nclasses = 2\nrate = 1', "rate is not a key"),
        ('path = "."\n[examples]\nkind = "text"\nclasses = 0', "classes = 0 must be a whole number"),
        ('path = "x.csv"\n[examples]\nkind = "text"\nclasses = 2', "a table has [columns]"),
        ('path = "x.npz"\ntargets = []\n[columns]\na = "number"', "what is no table has [examples]"),
        ('path = "x.npz"\n[examples]\nkind = "text"\nclasses = 2', "kind = 'text' is of folders"),
        ('path = "."\nid = "x"\n[examples]\nkind = "text"\nclasses = 2', "only a table has columns"),
    ],
)
def test_data_that_are_not_allowed(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "data.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_data(file)
    assert said in str(caught.value) and "\n" not in str(caught.value) and str(file) in str(caught.value)
