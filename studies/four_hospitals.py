"""Four hospitals, two studies and one SuperLink, all on this machine, with TLS, keys and a signed app.

Does what the operator of such a federation does, and prints each command before its output; docs/operations.md has
the output of one run. Two studies run at the same time on different nodes; a node is killed and comes back; a run
is stopped, another one fetched; an app that is not signed is refused; the nodes show their logs.

    uv run python studies/four_hospitals.py FOLDER

FOLDER must not exist. It takes about five minutes on two cores; ports are free ones of the loopback interface.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from lab.flower.flower_command import FlowerConnection, free_port, write_connection

HOSPITALS = ("hospital-a", "hospital-b", "hospital-c", "hospital-d")
DIGITS = ("nodes=hospital-a,hospital-b", "clients=2", "min_clients=1", "rounds=15", "timeout=120", "name=digits")
CELLS = ("nodes=hospital-c,hospital-d", "clients=2", "rounds=30", "task=breast_cancer", "model=mlp", "name=cells")
AS_ROOT = ["--allow-root"] if os.geteuid() == 0 else []
LONG = ("nodes=hospital-c,hospital-d", "clients=2", "rounds=500", "task=breast_cancer", "model=mlp", "name=long")
WAIT_SECONDS = 300.0


class Federation:
    """The processes and files below a folder."""

    def __init__(self, folder: Path) -> None:
        (folder / "desk").mkdir(parents=True)
        self.folder = folder
        self.env = {
            **os.environ,
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FEDSTRIDE_RUNS": str(folder / "fetched"),
            "FLWR_HOME": str(folder / "desk"),
        }
        self.control, self.fleet = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, *command: str) -> str:
        """Print a command and then its output, which is returned."""
        print(f"\n$ {shlex.join(command)}", flush=True)
        done = subprocess.run(
            command, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False,
        )  # fmt: skip
        print(done.stdout.rstrip() + (f"\n(exit code {done.returncode})" if done.returncode else ""), flush=True)
        return done.stdout

    def start(self, name: str, *command: str, again: bool = False, **env: str) -> None:
        """Print a command, unless it is started again, and start it; its output goes to the file NAME.log."""
        if not again:
            print(f"\n$ {shlex.join(command)} >{name}.log 2>&1 &", flush=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command, cwd=self.folder, env={**self.env, **env}, stdout=log, stderr=log
            )

    def log(self, name: str) -> str:
        """What a started command has printed so far."""
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def wait(self, name: str, pattern: str) -> None:
        """Wait until a started command has printed the pattern. Raises RuntimeError if it does not."""
        until = time.monotonic() + WAIT_SECONDS
        while re.search(pattern, self.log(name)) is None:
            if self.running[name].poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{name} has not printed {pattern}:\n{self.log(name)}")
            time.sleep(0.3)

    def hospital(self, name: str) -> None:
        """Start a node. After a kill, the SuperLink refuses its key for a minute; then it is started again."""
        number = HOSPITALS.index(name)
        home = self.folder / name
        home.mkdir(exist_ok=True)
        command = (
            "fedstride", "node", *AS_ROOT, "--root-certificates", "certs/ca.crt", "--superlink", self.fleet,
            "--auth-supernode-private-key", f"certs/{name}",
            "--trusted-entities", "keys/board.yaml",
            "--node-config", f'name="{name}" partition-id={number % 2} num-partitions=2',
        )  # fmt: skip
        (self.folder / f"{name}.log").write_bytes(b"")
        self.start(name, *command, FLWR_HOME=str(home))
        while True:
            try:
                self.wait(name, "SuperNode ID: ")
            except RuntimeError:
                if "(code 2004)" not in self.log(name):
                    raise
                time.sleep(5.0)
                (self.folder / f"{name}.log").write_bytes(b"")
                self.start(name, *command, again=True, FLWR_HOME=str(home))
            else:
                return

    def run_id(self, name: str) -> str:
        """The id that the SuperLink gave to a run, as its submitter has printed it."""
        match = re.search(r"run (\d+) submitted", self.log(name))
        assert match, self.log(name)
        return match[1]

    def end(self) -> None:
        """End all processes."""
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(30.0)
            except subprocess.TimeoutExpired:
                process.kill()


def play(federation: Federation) -> None:
    """The whole day."""
    prepare(federation)
    submit = ("fedstride", "submit", "clinics", "--signature", "study.sig")
    federation.run("fedstride", "submit", "clinics", *CELLS, "name=unsigned", "node_wait=30")

    federation.start("digits", *submit, *DIGITS)
    federation.start("cells", *submit, *CELLS)
    federation.wait("digits", r"round +3 ")
    print("\n# hospital-b loses its power", flush=True)
    federation.running["hospital-b"].kill()
    federation.run("fedstride", "runs", "clinics")
    federation.hospital("hospital-b")
    for name in ("digits", "cells"):
        federation.running[name].wait()
        print(f"\n# {name}.log\n{federation.log(name).rstrip()}", flush=True)

    federation.start("long", *submit, *LONG)
    federation.wait("long", r"round +3 ")
    federation.run("fedstride", "stop", federation.run_id("long"), "clinics")
    federation.running["long"].wait()
    federation.run("fedstride", "runs", "clinics")
    for name in ("digits", "cells"):
        federation.run("fedstride", "fetch", federation.run_id(name), "clinics")
    federation.run("fedstride", "table", "fetched")
    federation.run("fedstride", "report", "fetched", "-o", "report.html")
    for name in HOSPITALS:
        log, key = f"{name}/node-log.jsonl", f"certs/{name}.pub"
        federation.run("fedstride", "node-log", "--last", "4", log, "--key", key)


def prepare(federation: Federation) -> None:
    """Certificates, keys, the SuperLink, four nodes, and the signature of the app."""
    names = ",".join(HOSPITALS)
    federation.run("fedstride", "certificates", "certs", "--name", "fl.example.org", "--node-names", names)
    federation.run("fedstride", "sign", "key", "keys/board")
    federation.run("fedstride", "sign", "app", "keys/board", "study.sig")
    port = federation.control.rpartition(":")[2]
    federation.start(
        "superlink", "fedstride", "superlink", "--ssl-ca-certfile", "certs/ca.crt",
        "--ssl-certfile", "certs/server.crt", "--ssl-keyfile", "certs/server.key", "--database", "state.db",
        "--enable-supernode-auth",
        "--port", port, "--fleet-api-address", federation.fleet,
        FEDSTRIDE_RUNS=str(federation.folder / "runs"),
    )  # fmt: skip
    write_connection(
        Path(federation.env["FLWR_HOME"]),
        FlowerConnection("clinics", federation.control, federation.folder / "certs/ca.crt"),
    )
    federation.wait("superlink", "the SuperLink listens")
    federation.run("fedstride", "register", "clinics", *(f"certs/{name}.pub" for name in HOSPITALS))
    for name in HOSPITALS:
        federation.hospital(name)


def main() -> None:
    """Play it in the folder that is given."""
    federation = Federation(Path(sys.argv[1]).absolute())
    try:
        play(federation)
    finally:
        federation.end()


if __name__ == "__main__":
    main()
