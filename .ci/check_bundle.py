"""Checks what `flwr build` and `uv build` built: conf/ is included, tests and data are not, the size is small."""

import sys
import zipfile
from pathlib import Path

LIMIT = 2_100_000  # bytes of a Flower bundle, which is not compressed: code and settings, no data

fab, wheel = Path(sys.argv[1]), Path(sys.argv[2])
names = zipfile.ZipFile(fab).namelist()
assert fab.stat().st_size < LIMIT, f"{fab.name} has {fab.stat().st_size} bytes, more than {LIMIT}"
CONF = ("conf/config.yaml", "conf/experiment/quickstart.yaml", "conf/papers/experiments.yaml")
for wanted in (*CONF, "server_app/app.py", "client_app/app.py"):
    assert wanted in names, f"{wanted} is missing from {fab.name}"
strays = [n for n in names if n.startswith(("tests/", "runs/", "docs/", "data/")) or n.endswith((".npy", ".gz"))]
assert not strays, f"{fab.name} contains {strays[:5]}"
attacks = [n for n in names if {"lab", "attacks"} & set(n.split("/"))]
assert not attacks, f"{fab.name} contains {attacks[:5]}: attacks must not be in the app that clients get"
misplaced = [n for n in names if {"node", "superlink", "confinement"} & set(n.split("/"))]
assert not misplaced, (
    f"{fab.name} contains {misplaced[:5]}: a node and a server run what is installed there, not what an app has"
)
inside = zipfile.ZipFile(wheel).namelist()
HELD = (
    "conf/config.yaml",
    "py.typed",
    "strategies/norm_analysis.py",
    "server_app/app.py",
    "confinement/confine_process.py",
    "node/commands.py",
    "superlink/commands.py",
    "app.toml",
)
for wanted in HELD:
    assert f"fedstride/{wanted}" in inside, f"fedstride/{wanted} is missing from {wheel.name}"
print(f"{fab.name}: {len(names)} files, {fab.stat().st_size / 1000:.0f} kB; {wheel.name}: {len(inside)} files")
