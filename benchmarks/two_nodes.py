"""A real Ray cluster of several nodes on this machine, in namespaces of its own: no port, no process is anybody else's.

Everything runs inside a network namespace that has only its loopback, and a process namespace whose end is the end of
all processes in it. Nodes and drivers are killed by their numbers; `ray stop`, which looks for whatever is called Ray,
is never used.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ADDRESS = "127.0.0.1:6379"
INSIDE = ["--net", "--pid", "--mount"]
RAY = {
    "RAY_AUTH_MODE": "disabled",  # nobody else can reach a namespace that has only its loopback
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
}


def why_not() -> str | None:
    """What is missing for such a cluster, if anything is."""
    try:
        import ray  # noqa: F401
    except ImportError:
        return "Ray is not installed (pip install 'mesax[ray]')"
    if missing := [tool for tool in ("unshare", "nsenter", "ip") if shutil.which(tool) is None]:
        return f"{', '.join(missing)} not found"
    tried = subprocess.run([*_unshare(), "ip", "link", "set", "lo", "up"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "namespaces are not allowed here"


def _unshare() -> list[str]:
    user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]


class Cluster:
    """Nodes, and commands beside them; see `started`."""

    def __init__(self, folder: Path, inside: int) -> None:
        self.folder, self._inside = folder, inside
        self.nodes: list[subprocess.Popen[bytes]] = []

    def command(self, words: Sequence[str]) -> list[str]:
        """The same command, inside the namespaces."""
        user = [] if os.getuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", "--target", str(self._inside), *user, *INSIDE, *words]

    def popen(
        self, words: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """A process inside; its output goes to `log`."""
        with log.open("ab") as file:
            return subprocess.Popen(
                self.command(words),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=os.environ | RAY | (environment or {}),
                start_new_session=True,
            )

    def add_node(self, cpus: int = 1) -> None:
        """Start one more node; the first is the head. On a busy machine Ray may need several tries."""
        for tries_left in (2, 1, 0):
            try:
                self.nodes.append(self._started_node(cpus))
                return
            except RuntimeError:
                if not tries_left:
                    raise

    def _started_node(self, cpus: int) -> subprocess.Popen[bytes]:
        head = not self.nodes
        place = ["--head", "--port", ADDRESS.rpartition(":")[2]] if head else ["--address", ADDRESS]
        place += ["--temp-dir", str(self.folder / "ray"), "--include-dashboard", "false"] if head else []
        program = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start"]
        size = ["--num-cpus", str(cpus), "--object-store-memory", "80000000"]
        log = self.folder / f"node-{secrets.token_hex(4)}.log"
        words = [*program, *place, *size, "--node-ip-address", "127.0.0.1", "--disable-usage-stats", "--block"]
        node = self.popen(words, log)
        try:
            self._await("Ray runtime started", log, node)
        except RuntimeError:
            for number in descendants(node.pid):
                kill(number)
            node.wait()
            raise
        return node

    def _await(self, text: str, log: Path, node: subprocess.Popen[bytes], seconds: float = 180.0) -> None:
        limit = time.monotonic() + seconds
        while text not in log.read_text(errors="replace"):
            if node.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"a node did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)

    def processes(self) -> dict[int, str]:
        """All processes inside, by their numbers outside, with their command lines."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                lines = (entry / "status").read_text().splitlines()
                numbers = next(line for line in lines if line.startswith("NSpid:")).split()[1:]
                same = os.readlink(entry / "ns/pid") == os.readlink(f"/proc/{self._inside}/ns/pid")
                name = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except (OSError, StopIteration):
                continue
            if same and len(numbers) > 1 and name and int(entry.name) != self._inside:
                found[int(entry.name)] = name
        return found

    def used(self) -> dict[str, tuple[float, int]]:
        """Of each process inside: seconds of processor time so far, and the most bytes that it has ever held."""
        found = {}
        for number in self.processes():
            with suppress(OSError):  # it has just ended
                fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
                lines = Path(f"/proc/{number}/status").read_text().splitlines()
                most = sum(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
                ticks = int(fields[11]) + int(fields[12])
                found[f"{number} since {fields[19]}"] = ticks / os.sysconf("SC_CLK_TCK"), most
        return found

    def workers(self) -> list[int]:
        """Workers that are at a job."""
        return [number for number, name in self.processes().items() if name.startswith("ray::attempt_job")]

    def kill_node(self, index: int) -> None:
        """kill -9 of all that belongs to a node but its workers, which have to notice."""
        for number in descendants(self.nodes[index].pid):
            kill(number)
        self.nodes[index].wait()

    def await_nothing_but_nodes(self, seconds: float = 20.0) -> list[str]:
        """What of a run is still there after some seconds: workers, drivers, desks."""
        limit = time.monotonic() + seconds
        while left := [name for name in self.processes().values() if is_of_run(name)]:
            if time.monotonic() > limit:
                break
            time.sleep(0.2)
        return left


def is_of_run(name: str) -> bool:
    """Whether a process belongs to a run, by its command line."""
    return "mesax" in name.replace("two_nodes", "") or name.startswith(("ray::attempt_job", "ray::Desk"))


def descendants(number: int) -> list[int]:
    """A process and all below it, workers of Ray left out: whoever starts them is killed, not they."""
    found = [number]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += [int(child) for child in children.read_text().split()]
            except OSError:
                continue
    return [one for one in found if not _is_worker(one)]


def _is_worker(number: int) -> bool:
    try:
        name = Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return True
    return name.startswith(b"ray::") and b"Agent" not in name


def inner(process: subprocess.Popen[bytes]) -> int:
    """The process that a command inside is, as seen from outside: `nsenter` waits for it as its child."""
    limit = time.monotonic() + 10.0
    while time.monotonic() < limit:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.01)
    raise RuntimeError("the command did not start")


def kill(number: int, how: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to a process, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(number, how)


@contextmanager
def started(nodes: int = 2, cpus: int = 1) -> Iterator[Cluster]:
    """A cluster of so many nodes; nothing of it is left afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="mx-"))  # short: the names of sockets have at most 107 letters
    cluster = None
    holder = subprocess.Popen(
        [*_unshare(), "sh", "-c", "ip link set lo up && echo ready && exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout and holder.stdout.readline() == b"ready\n", "the namespaces could not be made"
        cluster = Cluster(folder, inner(holder))
        for _ in range(nodes):
            cluster.add_node(cpus)
        yield cluster
    finally:
        holder.kill()  # and with it the first process inside, and with that all others
        holder.communicate()
        for node in cluster.nodes if cluster else ():
            node.wait()
        shutil.rmtree(folder, ignore_errors=True)
