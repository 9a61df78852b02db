"""The apps that a node runs: signatures, and a copy that stays as it was signed."""

from __future__ import annotations

import io
import os
import re
import zipfile
from pathlib import Path

import pytest
from acting import APP, PROJECT, RUN
from app_store import for_flower
from flwr.app import RecordDict
from memory import BUNDLE, MemoryLink, Site, answered, bundled, sha

from fedstride.error_kinds import ErrorKind, Fault
from fedstride.flower.for_nodes.connection import AnnouncedRun, Bundle
from fedstride.messages import wire
from lab.deployment.app_signing import new_key, sign
from node.apps import installed_apps
from node.apps.installed_apps import Apps, InstalledApp
from node.apps.trusted_keys import trusted_keys
from node.log.log_lines import RefusedError
from node.log.verification import read

MANIFEST = PROJECT.encode()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    new_key(tmp_path / "study")
    return tmp_path / "study"


def received(tmp_path: Path, key: Path, signature: str, **signatures: str) -> tuple[Site, MemoryLink]:
    """A node that trusts the key, after a message of a run with this signature."""
    link = MemoryLink(signature=signature)
    link.bundles[sha(BUNDLE)] = Bundle(BUNDLE, signatures)
    trusted = trusted_keys(key.with_name("study.yaml"))
    site = Site(tmp_path / "node", link, lambda request: answered(RecordDict()), trusted)
    link.deliver()
    site.step()
    return site, link


def test_a_signed_app_is_run(tmp_path: Path, key: Path) -> None:
    site, link = received(tmp_path, key, sign(BUNDLE, key).dump())
    assert link.replies()[0].has_content() and len(site.processes.requests) == 1


def refused(tmp_path: Path, key: Path, signature: str, **signatures: str) -> str:
    site, link = received(tmp_path, key, signature, **signatures)
    (reply,) = link.replies()
    assert reply.error.code == wire.REFUSED and site.processes.requests == []
    assert not (tmp_path / "node/apps").exists()  # nothing of it is unpacked
    assert [row["event"] for row in read(site.log).rows] == ["received", "refused"]
    assert read(site.log).rows[0]["app_hash"] == sha(BUNDLE)
    assert reply.error.reason == str(Fault(ErrorKind.UNTRUSTED))
    return str(read(site.log).rows[1]["reason"])


def test_others_are_refused(tmp_path: Path, key: Path) -> None:
    new_key(tmp_path / "stranger")
    stranger = sign(BUNDLE, tmp_path / "stranger")
    for number, (signature, said) in enumerate(
        (
            ("", "is not signed, and this node runs signed apps only; see fedstride sign"),
            (stranger.dump(), "a key that this node does not trust"),
            (sign(BUNDLE + b"!", key).dump(), "it was altered"),
            (stranger.dump().replace(stranger.key, sign(BUNDLE, key).key), "it was altered"),
            ("{}", "has no valid signature"),
        )
    ):
        assert said in refused(tmp_path / str(number), key, signature)


def test_the_signatures_of_flowers_app_store_count(tmp_path: Path, key: Path) -> None:
    new_key(tmp_path / "stranger")
    by_stranger = {"valid_license": "Valid", **for_flower(sign(BUNDLE, tmp_path / "stranger"))}
    assert "by no key that this node trusts" in refused(tmp_path / "1", key, "", **by_stranger)
    for number, text in enumerate(
        ("[" * 2000, '{"signed_at": "x", "signature": "AA=="}', '{"signed_at": 1, "signature": 3}')
    ):
        broken = {"valid_license": "Valid", sign(BUNDLE, key).key: text}
        assert "by no key that this node trusts" in refused(tmp_path / f"2{number}", key, "", **broken)
    without = for_flower(sign(BUNDLE, key))
    assert "is not signed" in refused(tmp_path / "3", key, "", **without)
    _, link = received(tmp_path / "4", key, "", valid_license="Valid", **for_flower(sign(BUNDLE, key)))
    assert link.replies()[0].has_content()


# ---------------------------------------------------------------- the copy


def made(tmp_path: Path, bundle: bytes = BUNDLE) -> tuple[Apps, InstalledApp]:
    found = Apps(tmp_path / "apps", None)
    return found, found.of(AnnouncedRun(1, 1, sha(bundle), {}), Bundle(bundle, {}))


def test_the_copy_is_read_only_and_has_its_bytecode(tmp_path: Path) -> None:
    found, app = made(tmp_path)
    folder = found.unpacked(app)
    assert (app.id, app.version, app.signer) == ("test/acts", "1.0.0", "")
    assert (folder / "acts.py").read_text() == APP and list(folder.glob("__pycache__/acts.*.pyc"))
    modes = {oct(each.stat().st_mode & 0o777) for each in folder.rglob("*") if each.is_file()}
    assert modes == {"0o400"} and folder.stat().st_mode & 0o777 == 0o500


@pytest.mark.parametrize("change", ["content", "content with its old time", "new file", "removed", "mode"])
def test_a_copy_that_was_changed_is_made_again(tmp_path: Path, change: str) -> None:
    found, app = made(tmp_path)
    folder = found.unpacked(app)
    target = folder / "acts.py"
    os.chmod(folder, 0o700)
    os.chmod(target, 0o600)
    if change.startswith("content"):
        before = target.stat()
        target.write_bytes(b"#" * before.st_size)
        if change != "content":
            os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    if change == "new file":
        (folder / "sitecustomize.py").write_text("import os")
    if change == "removed":
        target.unlink()
    again = found.unpacked(app)
    assert again == folder and (folder / "acts.py").read_text() == APP
    assert not (folder / "sitecustomize.py").exists()
    assert found.unpacked(app) == folder
    assert [each.name for each in (tmp_path / "apps").iterdir()] == [folder.name]


def test_a_folder_that_cannot_be_written_refuses_the_message(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file in the way")
    found = Apps(tmp_path / "home/apps", None)
    app = found.of(AnnouncedRun(1, 1, sha(BUNDLE), {}), Bundle(BUNDLE, {}))
    with pytest.raises(RefusedError, match="this node cannot unpack the app: "):
        found.unpacked(app)


@pytest.mark.parametrize("way", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_refused(tmp_path: Path, way: int) -> None:
    """Of these, Python reads more than it is asked for: a gigabyte from some hundred bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", way) as archive:
        archive.writestr("pyproject.toml", MANIFEST)
    with pytest.raises(RefusedError, match="compressed in another way"):
        made(tmp_path, file.getvalue())


def test_a_forgotten_app_is_removed_and_unpacked_again(tmp_path: Path) -> None:
    found, app = made(tmp_path)
    folder = found.unpacked(app)
    found.forget(app)
    assert not folder.exists()
    assert (found.unpacked(app) / "acts.py").exists()


def test_an_unchanged_copy_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, app = made(tmp_path)
    folder = found.unpacked(app)
    monkeypatch.setattr(installed_apps, "_extract", None)
    assert found.unpacked(app) == folder


def test_another_process_with_old_files_begins_anew(tmp_path: Path) -> None:
    found, app = made(tmp_path)
    folder = found.unpacked(app)
    os.chmod(folder / "acts.py", 0o600)
    (folder / "acts.py").write_text("evil")
    found, app = made(tmp_path)
    assert (found.unpacked(app) / "acts.py").read_text() == APP


@pytest.mark.parametrize("at", range(30, 200, 10))
def test_a_damaged_bundle_is_refused(tmp_path: Path, at: int) -> None:
    """Whatever byte is another: an error of the archive, of its sum, or of what is in it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pyproject.toml", MANIFEST * 5)
    damaged = bytearray(file.getvalue())
    damaged[at] ^= 0xFF
    with pytest.raises(RefusedError, match="the app cannot be read"):
        unpacked(tmp_path, bytes(damaged))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a.py": b""}, "the app cannot be read"),
        ({"pyproject.toml": b"\xff"}, "the app cannot be read"),
        ({"pyproject.toml": b"a = ["}, "the app cannot be read"),
        ({"pyproject.toml": b"[project]\nname = 'x'"}, "the app cannot be read"),
        ({"pyproject.toml": b"#" * (installed_apps.MOST_MANIFEST + 1)}, "has more than 1048576 bytes"),
        ({"pyproject.toml": MANIFEST, "../out.py": b""}, "a file with the path '../out.py'"),
        ({"pyproject.toml": MANIFEST, "/out.py": b""}, "a file with the path '/out.py'"),
        ({"pyproject.toml": MANIFEST, "a\\b.py": b""}, "a file with the path"),
        ({"pyproject.toml": MANIFEST, "large": bytes(2000)}, "more than 1000 bytes"),
        ({"pyproject.toml": MANIFEST, **{str(n): b"" for n in range(9)}}, "more than 5 files"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bundle_that_is_none_is_refused(
    tmp_path: Path, files: dict[str, bytes], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed_apps, "MOST_BYTES", 1000)
    monkeypatch.setattr(installed_apps, "MOST_FILES", 5)
    with pytest.raises(RefusedError, match=re.escape(said)):
        unpacked(tmp_path, bundled(files))
    assert not (tmp_path / "out.py").exists()
    assert not list((tmp_path / "apps").glob("*"))


def unpacked(tmp_path: Path, bundle: bytes) -> Path:
    found, app = made(tmp_path, bundle)
    return found.unpacked(app)


def test_damaged_bundles_are_refused(tmp_path: Path) -> None:
    for damaged in (b"", b"no archive", BUNDLE[: len(BUNDLE) // 2], BUNDLE[:200] + b"x" * 50 + BUNDLE[250:]):
        with pytest.raises(RefusedError):
            unpacked(tmp_path, damaged)


# ---------------------------------------------------------------- which code runs

EVIL = "code that was not verified"


@pytest.mark.parametrize(
    "stated", ["{}/../../evil", "../evil", "/{evil}", "0.1.0.{}/../../evil", "", "\0", "{}"], ids=range(7)
)
def test_what_a_superlink_says_of_a_run_chooses_no_path(tmp_path: Path, key: Path, stated: str) -> None:
    """The folder is named by the digest of the bundle that was received and verified, whatever it is called."""
    evil = tmp_path / "node/evil"
    evil.mkdir(parents=True)
    (evil / "acts.py").write_text(EVIL)
    (evil / "pyproject.toml").write_bytes(MANIFEST)
    stated = stated.replace("{evil}", str(evil)).replace("{}", sha(BUNDLE))
    link = MemoryLink(signature=sign(BUNDLE, key).dump(), **{stated or "x": stated, "app": str(evil)})
    link.runs[RUN] = link.runs[RUN]._replace(app_hash=stated)
    link.bundles = {stated: Bundle(BUNDLE, {"valid_license": str(evil)})}
    trusted = trusted_keys(key.with_name("study.yaml"))
    site = Site(tmp_path / "node", link, lambda request: answered(RecordDict()), trusted)
    link.deliver()
    site.step()
    (request,) = site.processes.requests
    folder = Path(request.settings["folder"])
    assert folder.resolve() == folder and folder.name == sha(BUNDLE) and folder.parent == tmp_path / "node/apps"
    assert (folder / "acts.py").read_text() == APP
    assert (evil / "acts.py").read_text() == EVIL


@pytest.mark.slow
def test_an_app_that_edits_the_copy_of_another_changes_nothing_of_its_next_message(tmp_path: Path) -> None:
    """As an app can where the kernel does not confine it: it has the node's user."""
    found, app = made(tmp_path)
    other = bundled({"acts.py": b"# another app\n", "pyproject.toml": MANIFEST})
    second = found.of(AnnouncedRun(2, 1, sha(other), {}), Bundle(other, {}))
    mine, theirs = found.unpacked(app), found.unpacked(second)
    for file in (theirs / "acts.py", *theirs.glob("__pycache__/*.pyc")):
        os.chmod(file, 0o600)
        about = file.stat()
        file.write_bytes(b"#" * about.st_size)
        os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
        os.chmod(file, 0o400)
    assert found.unpacked(app) == mine and (mine / "acts.py").read_text() == APP
    assert found.unpacked(second) == theirs and (theirs / "acts.py").read_text() == "# another app\n"
    assert all(file.read_bytes().strip(b"#") for file in theirs.glob("__pycache__/*.pyc"))
