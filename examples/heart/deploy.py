"""Heart disease at four hospitals, deployed: a SuperLink and four nodes, with TLS, keys, policies and signed runs.

python examples/heart/deploy.py FOLDER

All on this machine. FOLDER must not exist. In it each machine of a deployment has a folder, which is the home of
its user there: server, desk (who signs and submits runs), cleveland, hungarian, switzerland, va. Each command is
printed before it runs, below the name of its machine. At the end, all processes are ended.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SITES = ("cleveland", "hungarian", "switzerland", "va")
SECONDS = 300.0  # until a process says that it is ready
NEXT = " \\\n    "  # of a command, on its next line
RUN = NEXT + (
    f"parts=heart.py task=heart model=mlp 'task.metrics=[auroc,accuracy]' clients=4 partition=own{NEXT}"
    "client.batch_size=25"
)


class Machines:
    """The folders that stand for machines, and the processes that were started in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []
        self.shown = ""
        for name in ("server", "desk", *SITES):
            (folder / name).mkdir(mode=0o700, parents=True)

    def _popen(self, name: str, command: str, output: int, alone: bool) -> subprocess.Popen[bytes]:
        """Start a command of a user whose home is the machine's folder, and who has set no variable of ours."""
        ours = ("FEDSTRIDE_", "FLWR_", "XDG_", "MPLCONFIGDIR")
        env = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
        path = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', os.defpath)}"
        env |= {"HOME": str(self.folder / name), "PATH": path, "FLWR_TELEMETRY_ENABLED": "0"}
        process = subprocess.Popen(
            ["bash", "-c", command], cwd=self.folder / name, env=env, start_new_session=alone,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.started.append(process)
        return process

    def _show(self, name: str, command: str) -> None:
        print(f"$ {command}" if name == self.shown else f"\n# {name}\n$ {command}", flush=True)
        self.shown = name

    def run(self, name: str, command: str, quiet: bool = False, code: int = 0) -> str:
        """Run a command at a machine and return its output. Another exit code ends everything."""
        self._show(name, command)
        process, output = self._popen(name, command, subprocess.PIPE, alone=False), ""
        assert process.stdout is not None
        for line in process.stdout:
            output += line.decode(errors="replace")
            if not quiet:
                print("  " + line.decode(errors="replace"), end="", flush=True)
        if process.wait() != code:
            sys.exit(f"exit code {process.returncode}" + f":\n{output}" * quiet)
        return output

    def start(self, name: str, command: str) -> subprocess.Popen[bytes]:
        """Start a command at a machine that goes on until the end; its output is in the file log there."""
        self._show(name, f"{command} > log 2>&1 &")
        with (self.folder / name / "log").open("wb") as log:
            return self._popen(name, f"exec {command}", log.fileno(), alone=True)

    def wait(self, name: str, process: subprocess.Popen[bytes], said: str) -> None:
        """Wait until a process has said this."""
        end = time.monotonic() + SECONDS
        while said not in (log := (self.folder / name / "log").read_text(errors="replace")):
            if process.poll() is not None or time.monotonic() > end:
                sys.exit(f"{name} is not ready:\n{log}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End all processes that were started here and have not ended, the last one first."""
        for process in reversed(self.started):
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def deploy(machines: Machines, files: Path, rounds: int, allow_root: bool) -> None:
    """Everything from the first key to the page of the run."""
    with socket.socket() as one, socket.socket() as two:
        for listener in (one, two):
            listener.bind(("127.0.0.1", 0))
        port, nodes_port = one.getsockname()[1], two.getsockname()[1]
    to = f"--address localhost:{port} --root-certificates ca.crt"

    machines.run("server", "fedstride certificates certs --name localhost", quiet=True)
    tls = "--ssl-ca-certfile certs/ca.crt --ssl-certfile certs/server.crt --ssl-keyfile certs/server.key"
    listening = f"--port {port} --fleet-api-address 127.0.0.1:{nodes_port}"
    kept = "--database state.db --enable-supernode-auth"
    superlink = machines.start("server", f"fedstride superlink {tls}{NEXT}{kept} {listening}")
    for site in SITES:
        machines.run(site, f"fedstride certificates keys --node-names {site}", quiet=True)

    keys = " ".join(f"../{site}/keys/{site}.pub" for site in SITES)
    machines.run("desk", f"cp {shlex.quote(str(HERE / 'heart.py'))} ../server/certs/ca.crt {keys} .")
    machines.run("desk", "fedstride sign key study", quiet=True)
    public = " ".join(f"{site}.pub" for site in SITES)
    machines.run("desk", f"cat {public} > nodes.pub")
    machines.wait("server", superlink, "the SuperLink listens on")
    token = f".flwr/superlink-tokens/localhost:{port}"
    machines.run("desk", f"install -D -m 600 ../server/{token} {token}")
    machines.run("desk", f"fedstride register {to} {public}")

    started = {}
    for number, site in enumerate(SITES):
        site_files = (files / f"processed.{site}.data", HERE / f"sites/{site}.toml", HERE / "policy.toml")
        copies = f"{shlex.join(map(str, site_files))}{NEXT}../desk/study.pub ../desk/nodes.pub ../desk/ca.crt"
        machines.run(site, f"cp {copies} .")
        if allow_root:
            machines.run(site, """sed -i 's/confine = "demanded"/confine = "if-possible"/' policy.toml""")
        config = f"""'name="{site}" partition-id={number} data="{site}.toml" policy="policy.toml"'"""
        trust = f"--root-certificates ca.crt --auth-supernode-private-key keys/{site}"
        options = f"--superlink localhost:{nodes_port} {trust}{NEXT}--node-config {config}"
        options += " --allow-root" * allow_root
        if number == 0:
            machines.run(site, f"fedstride node-check {options}")
        started[site] = machines.start(site, f"fedstride node {options}")
    for site, process in started.items():
        machines.wait(site, process, "SuperNode ID:")

    signed = "--key study --nodes nodes.pub"
    machines.run("desk", f"fedstride nodes {to}")
    machines.run("desk", f"fedstride check {to} {signed}{RUN}")
    said = machines.run("desk", f"fedstride submit {to} {signed}{RUN} rounds={rounds} name=heart")
    unsigned = f"{RUN} rounds={rounds} name=unsigned node_wait=5  # nobody has signed it: the nodes refuse it"
    machines.run("desk", f"fedstride submit {to}{unsigned}", code=1)
    [run] = re.findall(r"^run (\d+) submitted", said, re.MULTILINE)
    machines.run("desk", f"fedstride fetch {run} {to}")
    machines.run("desk", "fedstride report runs/heart")
    for site in SITES:
        machines.run(site, f"fedstride node-log --key keys/{site}.pub --last 4")


def lacks(folder: Path) -> list[str]:
    """Which of the four published files are not in a folder."""
    return [name for site in SITES if not (folder / (name := f"processed.{site}.data")).is_file()]


def published() -> Path:
    """The folder of the four files: heart-disease in that of FEDSTRIDE_DATA if it has them, else sites."""
    folder = Path(os.environ.get("FEDSTRIDE_DATA") or HERE).expanduser() / "heart-disease"
    return HERE / "sites" if lacks(folder) else folder


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a folder for all that is made; it must not exist")
    files = "folder with the four published files; default: $FEDSTRIDE_DATA/heart-disease, else sites here"
    parser.add_argument("--files", type=Path, default=published(), help=files)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--allow-root", action="store_true", help="start nodes as root (in a container)")
    given = parser.parse_args()
    if missing := lacks(given.files):
        parser.error(
            f"{given.files} has no {', '.join(missing)}: name the folder that has them with --files, or set "
            "FEDSTRIDE_DATA to the folder in which heart-disease has them"
        )
    if given.folder.exists():
        parser.error(f"{given.folder} exists: name a folder that does not")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    machines = Machines(given.folder.absolute())
    try:
        deploy(machines, given.files.absolute(), given.rounds, given.allow_root)
        print(f"\npages: {machines.folder}/desk/check.html and {machines.folder}/desk/report.html")
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        machines.stop()


if __name__ == "__main__":
    main()
