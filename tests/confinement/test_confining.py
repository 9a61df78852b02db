"""The parts around the kernel's two: descriptors, limits, signals of a supervisor, support, and bad input."""

from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from confinement import ConfinementError, Domain, Support, basics, level, support
from confinement.descriptors import gaps
from confinement.landlock_rights import (
    IOCTL_DEV,
    KNOWN,
    MAKE_REG,
    REFER,
    RIGHTS,
    TRUNCATE,
    handled,
    own,
    rights,
    ruleset,
)
from confinement.process_limits import limits

ROOT = Path(__file__).resolve().parents[2]
needs_a_kernel = pytest.mark.skipif(
    not support().possible, reason=f"missing here: {', '.join(support().missing())}"
)


def run(script: str, *arguments: object, before: str = "") -> str:
    """What a process prints that runs the script, with everything of `confinement` imported."""
    head = f"{before}\nimport os, resource, signal, sys\nfrom pathlib import Path\nfrom confinement import *\n"
    done = subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# ------------------------------------------------------------------ bad input: one line each

REFUSED = """
try:
    confine({domain})
except ConfinementError as error:
    print(error)
"""


@needs_a_kernel
@pytest.mark.parametrize("kind", ["read", "write", "devices", "listed"])
def test_a_missing_path_is_named(kind: str, tmp_path: Path) -> None:
    said = run(REFUSED.format(domain=f"Domain({kind}=(Path(sys.argv[1]),))"), tmp_path / "nowhere")
    assert said.splitlines() == [
        f"{tmp_path}/nowhere cannot be made readable or writable: No such file or directory"
    ]


@needs_a_kernel
def test_a_second_thread_is_an_error() -> None:
    script = "import threading\nthreading.Thread(target=signal.pause, daemon=True).start()" + REFUSED
    said = run(script.format(domain="Domain()") + "sys.stdout.flush()\nos._exit(0)")
    assert said.splitlines() == ["the process has 2 threads, and only one can be confined"]


ELSEWHERE = "import platform, sys\nsys.platform, platform.machine = {system!r}, lambda: {machine!r}"


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("linux", "riscv64"), ("linux", "i686")])
def test_another_system_or_machine_is_an_error_and_can_be_asked(system: str, machine: str) -> None:
    before = ELSEWHERE.format(system=system, machine=machine)
    script = "print(level(), support().possible, support().complete)" + REFUSED.format(domain="Domain()")
    assert run(script, before=before).splitlines() == [
        "0 False False",
        "this process cannot be confined; missing: everything: "
        "only Linux on x86-64 or aarch64 can confine a process",
    ]


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_that_is_none(port: int) -> None:
    with pytest.raises(ConfinementError, match=f"^port {port} is not allowed: a TCP port is 1 to 65535$"):
        Domain(ports=(port,))


@pytest.mark.parametrize("name", ["memory", "open_files", "processes", "file_bytes", "cpu_seconds"])
def test_a_limit_that_is_none(name: str) -> None:
    with pytest.raises(ConfinementError, match=f"^{name} = 0 is not allowed"):
        Domain(**{name: 0})


@needs_a_kernel
def test_a_level_of_nothing_is_an_error() -> None:
    said = run("try:\n    confine(Domain(), landlock=0)\nexcept ConfinementError as error:\n    print(error)")
    assert said.startswith("this process cannot be confined; missing: files (Landlock")


# ------------------------------------------------------------------ what the kernel has


def test_what_is_missing_is_said_in_words() -> None:
    assert Support("x86_64", KNOWN, True).missing() == () and Support("x86_64", KNOWN, True).complete
    old = Support("aarch64", 4, True)
    assert old.possible and not old.complete
    assert [text.split(" (")[0] for text in old.missing()] == ["controlling devices", "signals"]
    assert "network by port" in " ".join(Support("x86_64", 3, True).missing())
    assert not Support("x86_64", 7, False).possible and not Support("x86_64", 0, True).possible
    assert Support("x86_64", 0, False).missing()[0] == "a filter of system calls (seccomp)"


def test_the_level_is_that_of_the_support() -> None:
    assert 0 <= level() == support().landlock <= KNOWN


# ------------------------------------------------------------------ rights by version of Landlock


def test_a_version_handles_the_rights_that_it_knows() -> None:
    assert [handled(each).bit_count() for each in range(1, 8)] == [13, 14, 15, 15, 16, 16, 16]
    assert [len(ruleset(each)) for each in range(1, 8)] == [8, 8, 8, 16, 16, 24, 24]


def test_a_rule_has_only_what_its_kind_and_version_allow() -> None:
    assert rights("write", True, 7) == RIGHTS["write"]
    assert rights("write", True, 1) == RIGHTS["write"] & ~REFER & ~TRUNCATE
    assert not rights("write", False, 7) & MAKE_REG
    assert rights("device", False, 7) & IOCTL_DEV and not rights("device", False, 4) & IOCTL_DEV
    assert not RIGHTS["read"] & RIGHTS["write"] & ~RIGHTS["list"] & ~4, "what is written is never executed"


def test_the_own_folder_in_proc_is_not_readable_as_a_whole() -> None:
    kinds = {str(rule.path): rule.kind for rule in own(7)}
    assert "/proc/7" not in kinds
    assert kinds["/proc/7/task"] == kinds["/proc/7/fd"] == "list"


# ------------------------------------------------------------------ the system's files


def test_the_basics_exist_and_hold_no_secrets() -> None:
    found = [str(path) for path in basics()]
    assert all(Path(path).exists() for path in found) and len(set(found)) == len(found)
    assert not {
        "/",
        "/etc",
        "/proc",
        "/proc/self",
        "/dev",
        "/sys",
        "/sys/fs/cgroup",
        "/home",
        str(Path.home()),
    } & {*found}
    assert str(Path(sys.prefix).resolve()) in found and str(Path(sys.base_prefix).resolve()) in found
    assert "/etc/resolv.conf" not in found


def test_the_basics_with_a_network_have_the_name_servers() -> None:
    more = {str(path) for path in basics(network=True)} - {str(path) for path in basics()}
    assert more == ({"/etc/resolv.conf"} if Path("/etc/resolv.conf").exists() else set())


# ------------------------------------------------------------------ descriptors


def test_the_gaps_between_descriptors() -> None:
    last = 2**32 - 1
    assert gaps(set()) == [(0, last)]
    assert gaps({0, 1, 2}) == [(3, last)]
    assert gaps({1, 5}) == [(0, 0), (2, 4), (6, last)]


@needs_a_kernel
def test_all_other_descriptors_are_closed() -> None:
    script = """
        files = [os.open("/dev/null", os.O_RDONLY) for _ in range(50)]
        close_all_but({0, 1, 2, files[7], files[40]})
        def is_open(file):
            try:
                return bool(os.fstat(file))
            except OSError:
                return False
        print([files.index(file) for file in files if is_open(file)])
    """
    assert run(script) == "[7, 40]"


@needs_a_kernel
def test_a_kept_descriptor_that_is_not_open_is_an_error() -> None:
    script = "try:\n    close_all_but({0, 1, 2, 77})\nexcept ConfinementError as error:\n    print(error)"
    said = run(script)
    assert said.startswith("descriptors [0, 1, 2") and said.endswith("are open, not [0, 1, 2, 77]")


# ------------------------------------------------------------------ limits and capabilities


def test_the_limits_of_a_domain() -> None:
    assert limits(Domain()) == {resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: 256}
    assert limits(Domain(memory=5))[resource.RLIMIT_AS] == 5


LIMITED = """
limits = dict(memory=2**30, file_bytes=10**6, cpu_seconds=2, open_files=20)
confine(Domain(read=basics(), write=(Path(sys.argv[1]),), **limits))
def refused(act):
    try:
        act()
    except (OSError, MemoryError, ValueError) as error:
        return type(error).__name__ + str(getattr(error, "errno", ""))
"""


@needs_a_kernel
@pytest.mark.parametrize(
    ("act", "error"),
    [
        ("bytearray(2**31)", "MemoryError"),
        ("(Path(sys.argv[1]) / 'x').write_bytes(bytes(2 * 10**6))", "OSError27"),
        ("os.memfd_create('x')", "PermissionError1"),
        ("[os.open('/dev/null', 0) for _ in range(30)]", "OSError24"),
        ("resource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40))", "ValueError"),
    ],
)
def test_a_limit_holds(act: str, error: str, tmp_path: Path) -> None:
    assert run(f"{LIMITED}\nprint(refused(lambda: {act}))", tmp_path) == error


@pytest.mark.slow
@needs_a_kernel
def test_the_kernel_ends_a_process_after_its_time(tmp_path: Path) -> None:
    script = f"""
pid = os.fork()
if pid == 0:
    {textwrap.indent(LIMITED.replace("cpu_seconds=2", "cpu_seconds=1"), "    ").strip()}
    while True:
        pass
print(os.WTERMSIG(os.waitpid(pid, 0)[1]) in (signal.SIGKILL, signal.SIGXCPU))
"""
    assert run(script, tmp_path) == "True"


@needs_a_kernel
def test_a_lower_limit_that_holds_already_stays() -> None:
    script = """
        resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
        confine(Domain(open_files=100))
        print(resource.getrlimit(resource.RLIMIT_NOFILE))
    """
    assert run(script) == "(50, 50)"


CAPABILITIES = """
import ctypes, struct
head, sets = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0)), ctypes.create_string_buffer(24)
assert ctypes.CDLL(None).capget(head, sets) == 0
print(any(struct.unpack("=6I", sets.raw)))
"""


@needs_a_kernel
@pytest.mark.skipif(os.getuid() != 0, reason="only root has capabilities to lose")
def test_a_program_of_root_gets_no_capabilities_back() -> None:
    script = "import subprocess\n{}subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
    assert run(script.format(""), CAPABILITIES) == "True"
    assert run(script.format("confine(Domain(read=basics()))\n"), CAPABILITIES) == "False"


@needs_a_kernel
def test_nothing_that_is_started_gets_more_than_its_parent() -> None:
    script = """
        from confinement import kernel
        confine(Domain())
        no_new_privs, secure_bits, dumpable = 39, 27, kernel.PR_GET_DUMPABLE
        print(kernel.prctl(no_new_privs), kernel.prctl(dumpable), hex(kernel.prctl(secure_bits)))
    """
    assert run(script) == ("1 0 0xef" if os.getuid() == 0 else "1 0 0x0")


@needs_a_kernel
def test_a_process_that_is_not_confined_can_forbid_dumps() -> None:
    script = """
        from confinement import kernel
        before = kernel.prctl(kernel.PR_GET_DUMPABLE)
        no_dump()
        print(before, kernel.prctl(kernel.PR_GET_DUMPABLE), resource.getrlimit(resource.RLIMIT_CORE))
    """
    assert run(script) == "1 0 (0, 0)"


def test_dumps_cannot_be_forbidden_elsewhere() -> None:
    script = "try:\n    no_dump()\nexcept ConfinementError as error:\n    print(error)"
    said = run(script, before=ELSEWHERE.format(system="darwin", machine="arm64"))
    assert said == "dumps of this process cannot be forbidden: only Linux has prctl"


def test_descriptors_cannot_be_closed_elsewhere() -> None:
    script = "try:\n    close_all_but({0, 1, 2})\nexcept ConfinementError as error:\n    print(error)"
    said = run(script, before=ELSEWHERE.format(system="darwin", machine="arm64"))
    assert said == "descriptors cannot be closed: no system call close_range on this machine"


@needs_a_kernel
def test_a_confined_process_can_be_confined_further(tmp_path: Path) -> None:
    script = """
        from confinement import kernel
        confine(Domain(read=basics(), write=(Path(sys.argv[1]),)))
        rules = kernel.create_ruleset((2).to_bytes(8, "little"))
        kernel.restrict(rules)
        try:
            (Path(sys.argv[1]) / "x").write_text("x")
        except PermissionError:
            print("refused")
    """
    assert run(script, tmp_path) == "refused"


# ------------------------------------------------------------------ the supervisor's signals

needs_scoped_signals = pytest.mark.skipif(level() < 6, reason="needs Landlock 6")

SUPERVISOR = """
outside = os.fork()
if outside == 0:
    signal.pause()
supervisor = os.fork()
if supervisor == 0:
    scope_signals(outside)
    inside = [os.fork() for _ in range(1)]
    if inside == [0]:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
        signal.pause()
    for other in (outside, os.getppid()):
        try:
            os.kill(other, 0)
            os._exit(1)
        except PermissionError:
            pass
    os.kill(-1, signal.SIGKILL)
    os._exit(0 if os.WTERMSIG(os.waitpid(inside[0], 0)[1]) == signal.SIGKILL else 2)
print(os.waitstatus_to_exitcode(os.waitpid(supervisor, 0)[1]), os.waitpid(outside, os.WNOHANG))
os.kill(outside, signal.SIGKILL)
"""


@needs_scoped_signals
def test_signals_of_a_supervisor_reach_its_own_processes_only() -> None:
    assert run(SUPERVISOR) == "0 (0, 0)"


@needs_scoped_signals
def test_scoping_signals_changes_nothing_else(tmp_path: Path) -> None:
    script = """
        import socket
        scope_signals(os.getppid())
        (Path(sys.argv[1]) / "x").write_text("x")
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        print(Path("/etc/passwd").exists(), len(os.listdir("/proc/self/fd")))
    """
    assert run(script, tmp_path).startswith("True")


@needs_scoped_signals
def test_a_process_with_scoped_signals_can_fork_a_confined_one() -> None:
    script = """
        scope_signals(os.getppid())
        pid = os.fork()
        if pid == 0:
            confine(Domain(read=basics()))
            try:
                os.kill(os.getppid(), 0)
            except PermissionError:
                os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    assert run(script) == "7"


def test_signals_cannot_be_scoped_below_version_6() -> None:
    script = "try:\n    scope_signals(os.getppid())\nexcept ConfinementError as error:\n    print(error)"
    said = run(script, before=ELSEWHERE.format(system="darwin", machine="arm64"))
    assert said == "signals cannot be scoped: it needs Landlock ABI 6, Linux 6.12 or newer"


# ------------------------------------------------------------------ the package


def test_the_package_uses_the_standard_library_only() -> None:
    names = set()
    for path in (ROOT / "confinement").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add((node.module or "").split(".")[0])
    assert names <= sys.stdlib_module_names


@needs_a_kernel
def test_a_step_that_the_kernel_refuses_is_one_line() -> None:
    script = """
        from confinement import kernel
        def refuse(program):
            raise OSError(1, "Operation not permitted")
        kernel.set_filter = refuse
        try:
            confine(Domain())
        except ConfinementError as error:
            print(error)
    """
    assert run(script) == "the process cannot be confined (filter): Operation not permitted"


# ------------------------------------------------------------------ with a graphics card

NAMED_THREAD = """
import threading
confine(Domain(read=basics(), devices={devices}))
started, ended = threading.Event(), threading.Event()
thread = threading.Thread(target=lambda: (started.set(), ended.wait()))
thread.start()
started.wait()
entry = f"/proc/self/task/{{thread.native_id}}"
for name, mode in (("comm", "w"), ("environ", "r")):
    try:
        with open(f"{{entry}}/{{name}}", mode) as file:
            print(name, file.write("cuda") if mode == "w" else file.read())
    except OSError as error:
        print(name, error.strerror)
ended.set()
"""


@needs_a_kernel
@pytest.mark.parametrize(("devices", "said"), [("(Path('/dev/zero'),)", "4"), ("()", "Permission denied")])
def test_with_a_card_a_process_may_name_its_threads_and_reads_no_more(devices: str, said: str) -> None:
    """CUDA does, and fails without ("OS call failed"): seen on an H200 with the driver 580."""
    found = run(NAMED_THREAD.format(devices=devices)).splitlines()
    assert found == [f"comm {said}", "environ Permission denied"]


SOCKETS = """
import socket
confine(Domain(read=basics(), devices={devices}))
def tried(name, act):
    try:
        act()
        print(name, "done")
    except OSError as error:
        print(name, error.strerror)
    except NameError:
        print(name, "not there")
def make(): globals()["local"] = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
tried("socket", make)
tried("bind", lambda: local.bind("\\0fedstride-test-" + str(os.getpid())))
tried("listen", lambda: local.listen())
tried("accept", lambda: (local.setblocking(False), local.accept()))
tried("connect", lambda: local.connect("/run/somebody"))
tried("stream", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
tried("tcp", lambda: socket.socket())
"""


@needs_a_kernel
@pytest.mark.parametrize("card", [True, False])
def test_with_a_card_a_process_may_listen_at_a_local_socket_and_hears_nobody(card: bool) -> None:
    """CUDA does, and fails without."""
    found = run(SOCKETS.format(devices="(Path('/dev/zero'),)" if card else "()")).splitlines()
    refused, first = "Operation not permitted", ("socket", "bind", "listen")
    of_the_card = [f"{name} done" for name in first] + [f"{name} {refused}" for name in ("accept", "connect")]
    without = [f"socket {refused}"] + [f"{name} not there" for name in ("bind", "listen", "accept", "connect")]
    assert found == [*(of_the_card if card else without), f"stream {refused}", f"tcp {refused}"]
