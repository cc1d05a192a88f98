"""Machines of real daemons for the tests, on the loopback address, as `integration/src/cluster.rs` has them.

The programs `vmd` and `vm` are those of the folder in `VM_BINARIES`, or else of `target/debug`.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from typing import Any, Callable, Optional, TextIO, TypeVar

import pytest

T = TypeVar("T")

#: Bound on every wait of a test. Seconds.
PATIENCE = 60.0

ROOT = pathlib.Path(__file__).resolve().parents[3]
BINARIES = pathlib.Path(os.environ.get("VM_BINARIES", ROOT / "target" / "debug"))

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def end_with_us() -> None:
    """In a child: it is killed when the test process ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def wait_for(what: str, ready: Callable[[], Optional[T]]) -> T:
    """Calls `ready` again and again until it returns something."""
    begun = time.monotonic()
    while True:
        answer = ready()
        if answer:
            return answer
        assert time.monotonic() - begun < PATIENCE, f"waited in vain: {what}"
        # The pause only sets the pace of the calls.
        time.sleep(0.01)


class Machine:
    """A machine of real daemons, ended with the test."""

    def __init__(self, folder: pathlib.Path, hosts: int) -> None:
        self.folder = folder
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.names: list[str] = []
        for _ in range(hosts):
            self.add()

    def add(self) -> None:
        """Starts one more daemon, and waits until it is in the machine."""
        name = f"n{len(self.names) + 1}"
        words = [str(BINARIES / "vmd"), "--name", name, "--listen", "127.0.0.1:0"]
        words += ["--dir", str(self.folder / name), "--secret-file", str(self.folder / "secret")]
        words += ["--path", str(BINARIES), "--store", str(self.folder / "store")]
        if self.names:
            words += ["--join", self.address()]
        with open(self.folder / f"{name}.log", "wb") as log:
            daemon = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                preexec_fn=end_with_us,
            )
        self.daemons.append(daemon)
        self.names.append(name)

        def is_there() -> bool:
            assert daemon.poll() is None, (self.folder / f"{name}.log").read_text()
            conf = subprocess.run(self.words("conf", "--json", host=name), capture_output=True)
            if conf.returncode != 0:
                return False
            hosts = json.loads(conf.stdout)["hosts"]
            return len([host for host in hosts if host["state"] == "live"]) == len(self.names)

        wait_for(f"{name} is in the machine", is_there)

    def address(self) -> str:
        """The address at which the first daemon can be joined."""
        path = self.folder / self.names[0] / "address"
        return wait_for("an address", lambda: path.exists() and path.read_text().strip())

    def words(self, *command: str, host: str = "n1") -> list[str]:
        """The console with a command."""
        return [str(BINARIES / "vm"), "--dir", str(self.folder / host), *command]

    def vm(self, *command: str) -> Any:
        """Runs a command of the console that ends by itself, and returns its JSON."""
        done = subprocess.run(self.words(*command, "--json"), capture_output=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout) if done.stdout.strip() else None

    def try_vm(self, *command: str) -> bool:
        """Runs a command of the console that may be refused. Whether it was not."""
        done = subprocess.run(self.words(*command), capture_output=True, timeout=PATIENCE)
        return done.returncode == 0

    def start(self, program: str, *args: str, flags: tuple[str, ...] = ()) -> Run:
        """Starts a program in Python, given as its text or as a path."""
        if "\n" in program:
            path = self.folder / f"program{len(list(self.folder.glob('program*')))}.py"
            path.write_text(textwrap.dedent(program))
        else:
            path = pathlib.Path(program)
        return Run(self, ["run", *flags, sys.executable, str(path), *args])

    def restart(self, app: str) -> Run:
        """Restarts an application from its last checkpoint."""
        return Run(self, ["restart", app])

    def run(self, program: str, *args: str) -> str:
        """Runs a program in Python to its end, which must be a good one. Returns its output."""
        return self.start(program, *args).ends_well()

    def lose(self, name: str) -> None:
        """Kills the daemon of a host, as if the host were switched off."""
        daemon = self.daemons[self.names.index(name)]
        daemon.kill()
        daemon.wait(PATIENCE)

    def end(self) -> None:
        """Ends all daemons and their tasks."""
        for daemon in self.daemons:
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def logs(self) -> str:
        """What the daemons have logged."""
        return "\n".join(f"{path.name}:\n{path.read_text()}" for path in self.folder.glob("*.log"))


class Run:
    """A console that runs a program."""

    def __init__(self, machine: Machine, words: list[str]) -> None:
        self.machine = machine
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            machine.words(*words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            preexec_fn=end_with_us,
        )

    def read(self, read: Callable[[TextIO], str]) -> str:
        """Reads from the output; kills the console when that takes too long."""
        assert self.process.stdout is not None
        limit = threading.Timer(PATIENCE, self.process.kill)
        limit.start()
        try:
            return read(self.process.stdout)
        finally:
            limit.cancel()

    def line(self) -> str:
        """The next line of the output."""
        line = self.read(lambda output: output.readline())
        assert line, f"the output ends: {self.end()}\n{self.machine.logs()}"
        return line.rstrip("\n")

    def until(self, end: str) -> list[str]:
        """Reads lines up to one that contains `end`."""
        lines = [self.line()]
        while end not in lines[-1]:
            lines.append(self.line())
        return lines

    def end(self) -> tuple[int, str, str]:
        """Waits for the end. Returns the status, and what is left of the output and the errors."""
        output = self.read(lambda output: output.read())
        status = self.process.wait()
        self.errors.seek(0)
        errors = self.errors.read()
        ended = status != -signal.SIGKILL
        assert ended, f"it does not end: {output}{errors}\n{self.machine.logs()}"
        return status, output, errors

    def ends_well(self) -> str:
        """Waits for the end, which must be a good one. Returns the rest of the output."""
        status, output, errors = self.end()
        assert status == 0, f"{status}: {output}{errors}"
        return output


def _machine(hosts: int) -> Any:
    with tempfile.TemporaryDirectory(prefix="vmpy", ignore_cleanup_errors=True) as folder:
        machine = Machine(pathlib.Path(folder), hosts)
        try:
            yield machine
        finally:
            machine.end()


@pytest.fixture(scope="module")
def machine() -> Any:
    """A machine of two hosts, for all tests of a file."""
    yield from _machine(2)


@pytest.fixture
def three() -> Any:
    """A machine of three hosts for one test, which may lose hosts."""
    yield from _machine(3)
