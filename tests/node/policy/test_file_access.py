"""What the process of a message may reach: which folders it gets, and when a node does not start."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from confinement import Support, support
from fedstride.errors import ConfigError
from fedstride.flower.for_nodes.connection import SuperLinkAddress as At
from node.apps.installed_apps import InstalledApp
from node.log.log_lines import RefusedError
from node.policy import file_access
from node.policy.file_access import CACHES, Access, Folders, ProcessFolders, superlink_of
from node.policy.policy_file import Policy

HERE = Support("x86_64", 7, True)
OLD = Support("x86_64", 4, True)
NONE = Support("", 0, False)

RUN, OTHER = "0123456789abcdef", "fedcba9876543210"


def app(signer: str = "", digest: str = "a" * 64) -> InstalledApp:
    return InstalledApp("test/app", "1.0.0", signer, digest, b"")


def places(folder: Path, address: str = "fl.example.org:9092", policy: Policy | None = None) -> Access:
    folders = Folders(folder / "states", folder / "cache", folder / "scratch/1", data=folder / "data.csv")
    return Access(policy or Policy(), HERE, folders, {"one": "key 1", "two": "key 2", "again": "key 1"}, address)


def written(place: ProcessFolders) -> list[str]:
    found: list[str] = place.settings["domain"]["write"]
    return found


def test_what_a_process_may_read_and_write(tmp_path: Path) -> None:
    place = places(tmp_path).of(app(), tmp_path / "unpacked", RUN, 3)
    states, cache, scratch = written(place)
    read = set(place.settings["domain"]["read"])
    assert str(tmp_path / "unpacked") in read and str(tmp_path / "data.csv") not in read
    raw = places(tmp_path, policy=Policy(raw_data=True)).of(app(), tmp_path / "unpacked", RUN, 3)
    assert str(tmp_path / "data.csv") in raw.settings["domain"]["read"]
    assert (
        place.watched["folders"] == [str(Path(states).parent), cache, scratch]
        and place.watched["scratch"] == scratch
    )
    environment = place.settings["environment"]
    assert states == f"{environment['FEDSTRIDE_STATE']}/{RUN}" and cache == environment["FEDSTRIDE_CACHE"]
    assert scratch == environment["TMPDIR"] == environment["HOME"] == place.settings["folder"]
    assert all(Path(each).stat().st_mode & 0o777 == 0o700 for each in (states, cache))
    about = json.loads(Path(f"{states}.json").read_text())
    assert about == {"app": "a" * 64, "signer": "", "series": 3}


def test_two_messages_have_two_scratch_folders(tmp_path: Path) -> None:
    here = places(tmp_path)
    one, two = (here.of(app(), tmp_path, RUN, 3).watched["scratch"] for _ in range(2))
    assert one != two


def test_states_are_of_a_signer_and_a_run(tmp_path: Path) -> None:
    """Not of an app's digest or a run series, which a resumed run may change; and never of another signer's."""
    here = places(tmp_path)

    def states(signer: str, run: str, digest: str = "a" * 64, series: int = 3) -> str:
        return written(here.of(app(signer, digest), tmp_path, run, series))[0]

    first = states("one", RUN)
    assert first == states("one", RUN, digest="b" * 64, series=4) == states("again", RUN)
    assert len({first, states("two", RUN), states("", RUN), states("one", OTHER)}) == 4
    assert json.loads(Path(f"{first}.json").read_text())["series"] == 3


def test_a_superlink_that_moves_is_the_same_one_if_its_authority_is() -> None:
    one, two = (At(address, root_certificates=b"ca") for address in ("a:9092", "b:9092"))
    assert superlink_of(one) == superlink_of(two) != superlink_of(At("a:9092", root_certificates=b"other"))
    assert superlink_of(At("a:9092")) != superlink_of(At("b:9092"))


def test_unsigned_apps_of_two_superlinks_share_nothing(tmp_path: Path) -> None:
    one, two = (written(places(tmp_path, address).of(app(), tmp_path, RUN, 3)) for address in ("a:9092", "b:9092"))
    assert not set(one[:2]) & set(two[:2])


@pytest.mark.parametrize("run", ["", "../../other", "0123", RUN + "0", RUN.upper(), "a/b", "."])
def test_a_run_without_a_word_of_the_known_form_has_the_folder_of_its_series(tmp_path: Path, run: str) -> None:
    states = Path(written(places(tmp_path).of(app(), tmp_path, run, 3))[0])
    assert states.name == "series-3" and states.parent.parent == tmp_path / "states"


def test_the_cache_is_of_a_signer_and_an_app_and_the_newest_are_kept(tmp_path: Path) -> None:
    here = places(tmp_path)
    caches = []
    for number in range(CACHES + 3):
        caches.append(Path(written(here.of(app("one", f"{number:02}" * 32), tmp_path, RUN, 3))[1]))
        os.utime(caches[-1], (number, number))
    assert len(set(caches)) == CACHES + 3
    place = here.of(app("one", f"{CACHES + 2:02}" * 32), tmp_path, RUN, 3)
    assert place.cleared == str(caches[0].parent) and set(place.old) == {each.name for each in caches[:3]}


def test_without_confinement_the_folders_are_the_same(tmp_path: Path) -> None:
    place = places(tmp_path, policy=Policy("off")).of(app(), tmp_path, RUN, 3)
    assert place.settings["domain"] is None and "HOME" not in place.settings["environment"]
    assert Path(place.settings["environment"]["FEDSTRIDE_STATE"], RUN).is_dir()


def test_folders_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "states").write_text("a file")
    with pytest.raises(RefusedError, match="this node cannot make the folders of the message: "):
        places(tmp_path).of(app(), tmp_path, RUN, 3)


@pytest.mark.parametrize("level", ["states", "run", "caches", "cache", "apps"])
def test_a_link_in_place_of_a_folder_is_not_followed(tmp_path: Path, level: str) -> None:
    """Another user may have made it, where the folder above is not the node's alone."""
    here = places(tmp_path)
    run, cache = map(Path, written(here.of(app(), tmp_path, RUN, 3))[:2])
    folders = {"run": run, "states": run.parent, "cache": cache, "caches": cache.parent}
    folder = (folders | {"apps": cache.parent.parent})[level]
    shutil.rmtree(folder)
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match="is a link, and a node writes to no link") as caught:
        here.of(app(), tmp_path, RUN, 3)
    assert str(tmp_path) not in str(caught.value)  # the server gets this text
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_whole_folder_of_states_may_be_a_link(tmp_path: Path) -> None:
    """The site names it, and may put it on another disk."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "states").symlink_to(tmp_path / "disk")
    run = Path(written(places(tmp_path).of(app(), tmp_path, RUN, 3))[0])
    assert run.is_dir() and (tmp_path / "disk" / run.parent.name / RUN).is_dir()


@pytest.mark.parametrize("name", [f"{RUN}.json", f".{RUN}.json.PID"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_is_written_beside_a_folder_follows_no_link(tmp_path: Path, name: str, kind: str) -> None:
    here = places(tmp_path)
    place = Path(written(here.of(app(), tmp_path, RUN, 3))[0]).with_name(name.replace("PID", str(os.getpid())))
    place.unlink(missing_ok=True)
    (tmp_path / "victim").write_text("precious")
    place.symlink_to(tmp_path / "victim") if kind == "link" else os.mkfifo(place)
    about = place.with_name(f"{RUN}.json")
    here.of(app(), tmp_path, RUN, 4)
    assert (tmp_path / "victim").read_text() == "precious"
    assert json.loads(about.read_text())["series"] == 4 and about.is_file() and not about.is_symlink()


# ---------------------------------------------------------------- when a node does not start


@pytest.mark.parametrize(
    ("policy", "kernel", "is_root", "allowed", "said"),
    [
        (Policy(), HERE, True, False, "a node does not run as root, .* or accept the risk with --allow-root"),
        (Policy("off"), HERE, True, False, "a node does not run as root"),
        (Policy("demanded"), HERE, True, True, "does not allow a node that runs as root, also with --allow-root"),
        (Policy("demanded"), NONE, False, False, "the kernel of this machine cannot confine apps"),
        (
            Policy("demanded", 6),
            OLD,
            False,
            False,
            "landlock = 6 is demanded, but the kernel of this machine has 4",
        ),
    ],
)
def test_a_node_that_must_not_run(
    policy: Policy, kernel: Support, is_root: bool, allowed: bool, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        file_access.check(policy, kernel, is_root, allowed)
    assert "\n" not in str(caught.value)


def test_a_node_that_may_run() -> None:
    file_access.check(Policy(), HERE, True, True)
    file_access.check(Policy(), NONE, False, False)
    file_access.check(Policy("demanded", 4), OLD, False, False)


def test_files_that_apps_must_not_read(tmp_path: Path) -> None:
    """Also through a link, and if they do not exist yet."""
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    for path in (tmp_path / "data/key", tmp_path / "data", tmp_path / "link/inner/key"):
        with pytest.raises(ConfigError, match=r"the node's key .* lies in .*, which apps may read; move it"):
            file_access.check_paths({"the node's key": path}, [tmp_path / "data"])
    file_access.check_paths({"the node's key": tmp_path / "data2/key"}, [tmp_path / "data"])


def test_what_a_person_is_told() -> None:
    assert file_access.in_words(Policy(), HERE, True) == "apps are confined by the kernel"
    assert "without " in file_access.in_words(Policy(), OLD, True) and "signals" in file_access.in_words(
        Policy(), OLD, True
    )
    assert file_access.in_words(Policy(), HERE, False).endswith("cannot be seen in /proc, or limited")
    assert file_access.in_words(Policy(), NONE, True).startswith("apps are not confined: everything")
    assert file_access.in_words(Policy("off"), HERE, True) == 'apps are not confined (confine = "off")'


def test_this_kernel_is_asked() -> None:
    assert support().machine in ("", "x86_64", "aarch64")
