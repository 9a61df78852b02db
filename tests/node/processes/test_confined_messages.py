"""Messages of a real template that the kernel confines: what an app reaches, uses and leaves behind."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from acting import Placed, content, descendants, left, rest, running, unpack
from pids import gone

from confinement import support
from node.policy.policy_file import Policy
from node.processes.frames import Bounds
from node.processes.message_processes import DiedError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not support().possible, reason="the kernel of this machine cannot confine a process"),
]

BOUNDS = Bounds(objects=100, bytes=64 * 2**20, state=10_000)
CANARY = "AWS_SECRET_ACCESS_KEY"
TRY = """
def tried(name, act):
    try:
        act()
        reply[name] = "done"
    except OSError as error:
        reply[name] = error.strerror or type(error).__name__
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a site: data that apps may read, and what they may not."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("data.csv", "other.csv", "home/key", "home/node-log.jsonl"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x,y\n1,2\n")
    return folder


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("unpacked") / "app")


@pytest.fixture(scope="module")
def shown() -> list[str]:
    return []


@pytest.fixture(scope="module")
def processes(site: Path, shown: list[str]) -> Iterator[Placed]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLWR_TELEMETRY_ENABLED", "0")
        patch.setenv(CANARY, "canary-of-the-node")
        found = Placed(float("inf"), pytest.fail, shown.append, [], BOUNDS)
        found.start()
        yield found
        found.close()
    assert not descendants(os.getpid())


@pytest.fixture
def node(processes: Placed, site: Path) -> Placed:
    processes.put(site / "home", read=[site / "data.csv"])
    return processes


def ran(node: Placed, app: Path, code: str) -> Mapping[str, Any]:
    """What an app found that runs this code."""
    return dict(content(node.answer(running(app, TRY + code), 60.0)).config_records["did"])


# ---------------------------------------------------------------- what it reaches


def test_an_app_reads_its_packages_itself_and_the_sites_data_and_nothing_else(
    node: Placed, app: Path, site: Path
) -> None:
    found = ran(
        node,
        app,
        f"""
import glob, torch, json
for name in ("data.csv", "other.csv", "home/key", "home/node-log.jsonl"):
    tried(name, lambda: open({str(site)!r} + "/" + name).read())
tried("itself", lambda: open({str(app)!r} + "/acts.py").read())
tried("packages", lambda: open(torch.__file__).read())
for path in ("/etc/shadow", "/root/.bashrc", "/proc/1/environ", "/proc/self/environ", "/etc/fstab"):
    tried(path, lambda: open(path).read())
tried("home", lambda: os.listdir({str(site / "home")!r}))
tried("scratch of others", lambda: os.listdir({str(site / "home/scratch")!r}))
tried("caches", lambda: os.listdir({str(site / "home/cache/apps")!r}))
""",
    )
    allowed = {"data.csv", "itself", "packages"}
    ways = found.keys() - {"pid", "parent", "argv"}
    assert {name for name in ways if found[name] == "done"} == allowed
    assert {found[name] for name in ways - allowed} <= {"Permission denied", "No such file or directory"}


def test_an_app_writes_its_own_folders_and_nothing_else(node: Placed, app: Path, site: Path) -> None:
    found = ran(
        node,
        app,
        f"""
import tempfile
own = [tempfile.gettempdir(), os.getcwd(), os.environ["FEDSTRIDE_CACHE"]]
own.append(os.environ["FEDSTRIDE_STATE"] + "/series-5")
for number, folder in enumerate(own):
    tried(f"own {{number}}", lambda: open(folder + "/mine", "w").write("x"))
tried("data", lambda: open({str(site / "data.csv")!r}, "a"))
tried("data, emptied", lambda: os.truncate({str(site / "data.csv")!r}, 0))
tried("itself", lambda: open({str(app)!r} + "/acts.py", "a"))
tried("a module beside it", lambda: open({str(app)!r} + "/torch.py", "w"))
tried("another run", lambda: os.mkdir(os.environ["FEDSTRIDE_STATE"] + "/0123456789abcdef"))
tried("whose it is", lambda: open(os.environ["FEDSTRIDE_STATE"] + "/series-5.json", "a"))
tried("the log", lambda: open({str(site / "home/node-log.jsonl")!r}, "a"))
tried("a program", lambda: os.execv(os.environ["TMPDIR"] + "/mine", ["mine"]))
tried("a link", lambda: os.symlink("/etc/passwd", os.environ["TMPDIR"] + "/link"))
tried("a pipe", lambda: os.mkfifo(os.environ["TMPDIR"] + "/pipe"))
""",
    )
    ways = found.keys() - {"pid", "parent", "argv"}
    assert {name for name in ways if found[name] == "done"} == {"own 0", "own 1", "own 2", "own 3"}
    assert (site / "data.csv").read_text() == "x,y\n1,2\n"


def test_an_app_reaches_no_network_and_no_other_process(node: Placed, app: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()  # it can be reached from here
        found = ran(
            node,
            app,
            f"""
tried("tcp", lambda: socket.create_connection(("127.0.0.1", {port}), 5))
tried("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
tried("unix", lambda: socket.socket(socket.AF_UNIX))
tried("datagrams", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
tried("supervisor", lambda: os.kill(os.getppid(), 9))
tried("node", lambda: os.kill({os.getpid()}, 0))
tried("template", lambda: os.kill({node._template.pid if node._template else 0}, 0))
tried("environment", lambda: open("/proc/{os.getpid()}/environ").read())
""",
        )
    assert "done" not in found.values()


def test_a_secret_of_the_node_is_nowhere_in_a_process(node: Placed, app: Path) -> None:
    """Neither in its variables nor in the memory that it has from the template."""
    found = ran(
        node,
        app,
        """
import ctypes, re
secret = re.compile(rb"canary[-]of[-]the[-]node")  # which it does not match itself
reply["variables"] = sum(secret.search(value.encode()) is not None for value in os.environ.values())
reply["regions"] = reply["places"] = 0
for line in open("/proc/self/maps"):
    if "rw-p" in line and "[v" not in line:
        first, last = (int(each, 16) for each in line.split()[0].split("-"))
        memory = ctypes.string_at(first, last - first)
        reply["regions"] += 1
        reply["places"] += secret.search(memory) is not None
""",
    )
    assert found["variables"] == 0 and found["regions"] > 10 and found["places"] == 0


# ---------------------------------------------------------------- what it leaves behind

DESCENDANTS = """
import time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(os.environ["FEDSTRIDE_CACHE"] + "/begun", "w") as begun:
            begun.write(str(os.getpid()))
        os.rename(begun.name, os.environ["FEDSTRIDE_CACHE"] + "/pid")
        time.sleep(600)
    time.sleep(600)
subprocess.Popen(["sleep", "600"], start_new_session=True)
try:
    reply["sibling"] = ctypes.CDLL(None).syscall(56, 0x8000 | 17, 0, 0, 0, 0)  # CLONE_PARENT
except OSError as error:
    reply["sibling"] = -1
while not os.path.exists(os.environ["FEDSTRIDE_CACHE"] + "/pid"):
    time.sleep(0.01)
time.sleep(0.1)
reply["pid of a grandchild"] = int(open(os.environ["FEDSTRIDE_CACHE"] + "/pid").read())
"""


def test_every_descendant_ends_with_its_message(node: Placed, app: Path) -> None:
    """Also with a session of its own, whose parent has ended, which holds the connection open."""
    assert node._template is not None
    found = ran(node, app, DESCENDANTS)
    assert found["sibling"] == -1
    rest(node)
    assert gone(int(found["pid of a grandchild"]))
    assert not left(node)


def test_a_scratch_folder_is_removed_and_what_is_kept_stays(node: Placed, app: Path, site: Path) -> None:
    code = """
os.makedirs(os.environ["TMPDIR"] + "/a/b", mode=0)
open(os.environ["FEDSTRIDE_CACHE"] + "/kept", "w").write("x")
reply["scratch"] = os.environ["TMPDIR"]
"""
    scratch = Path(str(ran(node, app, code)["scratch"]))
    rest(node)
    assert not scratch.exists() and list((site / "home/cache").rglob("kept"))


# ---------------------------------------------------------------- what it uses


@pytest.mark.parametrize(
    ("policy", "code", "said"),
    [
        (
            Policy(memory_gib=0.75),
            "import time\nfor _ in range(8):\n    if os.fork() == 0:\n"
            "        kept = bytearray(200 * 2**20)\n        time.sleep(600)\ntime.sleep(600)",
            "killed, as it used more memory than this node allows (0.75 GiB)",
        ),
        (
            Policy(processes=20),
            "import time\nfor _ in range(30):\n    threading.Thread(target=time.sleep, args=(600,)).start()\n"
            "time.sleep(600)",
            "killed, as it had more processes and threads than this node allows (20)",
        ),
        (
            Policy(disk_gib=0.01),
            "import time\nfor n in range(4):\n    open(str(n), 'wb').write(bytes(4 * 2**20))\ntime.sleep(600)",
            "killed, as its folders hold more than this node allows (0.01 GiB)",
        ),
        (
            Policy(files=50),  # orphans that end all the time do not keep the supervisor from looking
            "import time\nif os.fork() == 0:\n    while True:\n        time.sleep(0.05)\n"
            "        if os.fork() == 0:\n            os._exit(os.fork() * 0)\n        os.wait()\n"
            "for n in range(100):\n    os.mkdir(str(n))\ntime.sleep(600)",
            "killed, as its folders hold more files than this node allows (50)",
        ),
        (
            Policy(files=50),  # in a folder that cannot be listed as it is
            "import time\nos.mkdir('deep', 0o300)\nfor n in range(100):\n    os.mkdir(f'deep/{n}')\n"
            "time.sleep(600)",
            "killed, as its folders hold more files than this node allows (50)",
        ),
        (
            Policy(),
            "import time\nfor n in range(80):\n    os.mkdir('n' * 250)\n    os.chdir('n' * 250)\ntime.sleep(600)",
            "killed, as what is in its folders cannot be counted (folders are nested deeper than 64)",
        ),
        (
            Policy(free_gib=2**19),
            "reply['never'] = 1",
            "not started, as less is free on the disk than this node demands (5.24e+05 GiB)",
        ),
        (
            Policy(files=50),
            "import time\nfor n in range(100):\n    os.mkdir(os.environ['TMPDIR'] + f'/{n}')\ntime.sleep(600)",
            "killed, as its folders hold more files than this node allows (50)",
        ),
    ],
)
def test_an_app_that_uses_too_much_is_ended(
    processes: Placed, app: Path, tmp_path: Path, policy: Policy, code: str, said: str
) -> None:
    processes.put(tmp_path, policy)
    with pytest.raises(DiedError) as caught:
        processes.answer(running(app, code), 60.0)
    assert str(caught.value) == said
    processes.put(tmp_path / "next")
    rest(processes)
    assert ran(processes, app, "reply['next'] = 1")["next"] == 1


def test_a_process_that_stays_after_its_answer_uses_nothing_beside_the_next_message(
    processes: Placed, app: Path, tmp_path: Path
) -> None:
    processes.put(tmp_path)
    stays = "import time\nthreading.Thread(target=time.sleep, args=(600,)).start()\nreply['n'] = 1"
    pids = [ran(processes, app, stays)["pid"] for _ in range(3)]
    assert gone(*map(int, pids[:2]), seconds=0.5)
    rest(processes)


def test_when_memory_runs_out_an_app_ends_first(processes: Placed, app: Path, tmp_path: Path) -> None:
    processes.put(tmp_path, Policy("off"))
    code = "reply['score'] = int(open('/proc/self/oom_score_adj').read())"
    assert ran(processes, app, code)["score"] == 1000
    assert processes._template is not None
    assert int(Path(f"/proc/{processes._template.pid}/oom_score_adj").read_text()) < 1000


def test_one_large_allocation_is_an_error_of_the_app(processes: Placed, app: Path, tmp_path: Path) -> None:
    processes.put(tmp_path, Policy(memory_gib=1.0))
    answer = processes.answer(running(app, "kept = bytearray(2 * 2**30)"), 60.0)
    assert answer.error is not None and "MemoryError" in answer.error[1]


def test_folders_that_are_full_already_let_nothing_start(processes: Placed, app: Path, tmp_path: Path) -> None:
    processes.put(tmp_path, Policy(files=50))
    code = "for n in range(100):\n    os.mkdir(os.environ['FEDSTRIDE_CACHE'] + f'/{n}')"
    processes.answer(running(app, code), 60.0)
    rest(processes)
    with pytest.raises(DiedError, match="not started, as its folders hold more files than this node allows"):
        processes.answer(running(app, "reply['next'] = 1"), 60.0)


def test_what_an_app_writes_is_shown_without_what_a_terminal_acts_on(
    node: Placed, app: Path, shown: list[str]
) -> None:
    shown.clear()
    ran(
        node,
        app,
        r"""print("\x1b[2Jout", flush=True); os.write(2, b"err \x07\n"); os.system("echo from a program")""",
    )
    rest(node)
    assert shown == [" [2Jout", "err  ", "from a program"]


def test_a_path_that_is_not_there_any_more_ends_the_message(
    processes: Placed, app: Path, tmp_path: Path, shown: list[str]
) -> None:
    shown.clear()
    processes.put(tmp_path, read=[tmp_path / "gone.csv"])
    with pytest.raises(DiedError, match="exit code 1"):
        processes.answer(running(app, "reply['next'] = 1"), 60.0)
    rest(processes)
    assert len(shown) == 1 and "gone.csv cannot be made readable or writable: No such file" in shown[0]


def test_without_confinement_an_app_reaches_what_the_user_reaches(
    processes: Placed, app: Path, site: Path, tmp_path: Path
) -> None:
    """The same ways as above succeed, so it is the kernel that closes them."""
    processes.put(tmp_path, Policy("off"))
    code = f"""
tried("key", lambda: open({str(site / "home/key")!r}).read())
tried("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close())
tried("node", lambda: os.kill({os.getpid()}, 0))
tried("link", lambda: os.symlink("/etc/passwd", os.environ["TMPDIR"] + "/link"))
"""
    found = ran(processes, app, code)
    assert [found[name] for name in ("key", "udp", "link")] == ["done"] * 3
    rest(processes)
