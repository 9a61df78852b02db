"""What `stop`, `logs`, `watch`, `fetch` and `resume` say to what is no run: paths, users' homes, numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import Call

NONE = [
    *("../x", "..", ".", "", "/", "/etc", "~", "~root", "~nobody-of-this-name", "1/../../x", "runs/../.."),
    *("../" * 50 + "etc/passwd", "x" * 5000, "file:///etc", "a/b", "\x1b[31m"),
    *("0", "-1", "+5", " 5", "5 ", "5\n", "1_0", "²", "١٢", str(2**64), "9" * 5000),
]


@pytest.fixture
def desk(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of runs beside which nothing may change, and one connection, which is not asked."""
    (home / "config.toml").write_text('[superlink.clinic]\naddress = "127.0.0.1:1"\ninsecure = true\n')
    (tmp_path / "runs").mkdir()
    monkeypatch.setenv("FEDSTRIDE_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("command", ["stop", "logs", "watch", "fetch", "resume"])
def test_what_is_no_run_is_one_line_and_nothing_is_written(desk: Path, command: str, call: Call) -> None:
    before = sorted(desk.rglob("*"))
    for name in NONE:
        code, out, err = call(command, "--", name)
        assert code == 2 and out == "" and len(err.splitlines()) == 1, name
        said = "is not a run folder" if command == "resume" else "is neither a run folder nor a run id"
        assert said in err or "cannot be read" in err, err
        assert "\x1b" not in err and (command == "resume" or len(err) < 250)
    assert sorted(desk.rglob("*")) == before
