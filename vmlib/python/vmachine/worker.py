"""A worker of a :class:`vmachine.Pool`: ``python -m vmachine._run_worker``.

It gets what it needs to import the functions of the pool's program, and then one job after the other. The
program's script is run under another name than ``__main__``, as ``multiprocessing`` does, so a script does
its work below ``if __name__ == "__main__":``.
"""

from __future__ import annotations

import os
import pickle
import runpy
import sys
import traceback
import types
from typing import Any, Callable, Optional

from .errors import EndedError, PickleError
from .messages import dumps
from .task import Task, init

#: Tags of the messages between a pool and its workers, which no program uses.
SETUP = 0x7FFF_F001
JOB = 0x7FFF_F002
RESULT = 0x7FFF_F003

#: Name of the pool's script in its workers.
MAIN_NAME = "__vm_main__"


class Setup:
    """What a worker needs before its first job."""

    def __init__(self, initializer: Optional[Callable[..., Any]], initargs: tuple[Any, ...]) -> None:
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        self.path = [os.path.abspath(entry or os.getcwd()) for entry in sys.path]
        self.folder = os.getcwd()
        self.argv = sys.argv
        self.module: Optional[str] = spec.name if spec is not None else None
        self.script: Optional[str] = None
        script = getattr(main, "__file__", None)
        if self.module is None and script:
            self.script = os.path.abspath(script)
        # Only known once the script was imported.
        self.initializer = dumps((initializer, initargs))

    def prepare(self) -> None:
        """In the worker: makes the modules of the pool's program importable."""
        sys.path[:] = self.path
        sys.argv[:] = self.argv
        os.chdir(self.folder)
        if self.script or self.module:
            module = types.ModuleType(MAIN_NAME)
            if self.module:
                values = runpy.run_module(self.module, run_name=MAIN_NAME, alter_sys=True)
            else:
                values = runpy.run_path(str(self.script), run_name=MAIN_NAME)
            module.__dict__.update(values)
            sys.modules["__main__"] = sys.modules[MAIN_NAME] = module
        initializer, initargs = pickle.loads(self.initializer)
        if initializer is not None:
            initializer(*initargs)


class Failure:
    """An exception of a job, with the text of its traceback."""

    def __init__(self, error: BaseException) -> None:
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        self.text = "".join(lines)
        error.__traceback__ = None
        try:
            self.error = dumps(error)
        except PickleError:
            self.error = dumps(RuntimeError(f"{type(error).__name__}: {error}"))

    def exception(self) -> BaseException:
        """In the pool: the exception, whose cause shows the traceback in the worker."""
        error: BaseException
        try:
            error = pickle.loads(self.error)
        except Exception:
            error = RuntimeError("the job failed with an exception that cannot be read here")
        error.__cause__ = RemoteTraceback(self.text)
        return error


class RemoteTraceback(Exception):
    """The traceback of a job in its worker."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _run(work: bytes) -> tuple[bool, Any]:
    """Whether a job ended well, and its result or :class:`Failure`, pickled."""
    try:
        function, args, kwargs = pickle.loads(work)
        return True, dumps(function(*args, **kwargs))
    except (Exception, SystemExit) as error:
        return False, dumps(Failure(error))


def serve(vm: Task) -> None:
    """Does the jobs of the task that has started this one, until it says that there are no more."""
    if vm.parent is None:
        raise SystemExit("this program is started by a vmachine.Pool")
    setup: Setup = vm.recv(vm.parent, SETUP).obj()
    try:
        setup.prepare()
    except (Exception, SystemExit) as error:
        vm.send((None, False, dumps(Failure(error))), vm.parent, RESULT)
        return
    vm.send((None, True, b""), vm.parent, RESULT)
    while (job := vm.recv(vm.parent, JOB).obj()) is not None:
        number, work = job
        done, value = _run(work)
        vm.send((number, done, value), vm.parent, RESULT)


def main() -> None:
    """The program of a worker."""
    try:
        serve(init())
    except (EndedError, KeyboardInterrupt):
        # The pool's task has ended: nobody wants a result.
        pass
