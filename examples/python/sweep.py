"""A parameter sweep: how far a pendulum with friction swings, for each force that drives it.

    vm run python3 examples/python/sweep.py --forces 64 --out sweep.csv

Without a pool: the master hands each worker one parameter at a time, and is told when a worker ends. It
gives the parameter of a lost worker to another one. Between two parameters a worker has nothing to save,
in the midst of one it has its arrays; it can be moved at any moment in both.
"""

import argparse
import contextlib
import csv
import sys

import numpy

import vmachine

PARAMETER, RESULT = 1, 2


def swing(force: float, steps: int) -> float:
    """The largest angle, of pendulums that start at many angles, after the first half of the time."""
    dt = 0.01
    angle, speed = numpy.linspace(-1.0, 1.0, 256), numpy.zeros(256)
    largest = 0.0
    for step in range(steps):
        drive = force * numpy.cos(2 / 3 * step * dt)
        speed += dt * (drive - 0.5 * speed - numpy.sin(angle))
        angle += dt * speed
        if step > steps // 2:
            largest = max(largest, float(numpy.abs(angle).max()))
    return largest


def work(vm: vmachine.Task, steps: int) -> None:
    """A worker: one result for each parameter, until the master sends none."""
    while (force := vm.recv(vm.parent, PARAMETER).obj()) is not None:
        vm.send((force, swing(force, steps)), vm.parent, RESULT)


def sweep(vm: vmachine.Task, forces: list[float], count: int) -> dict[float, float]:
    """The master: the result for each parameter."""
    waiting = list(reversed(forces))
    results: dict[float, float] = {}
    at_work: dict[vmachine.Tid, float] = {}

    def give(worker: vmachine.Tid) -> None:
        force = waiting.pop() if waiting else None
        vm.send(force, worker, PARAMETER)
        if force is not None:
            at_work[worker] = force

    for worker in vm.spawn_self(count=count):
        vm.watch_task(worker)
        give(worker)
    while len(results) < len(forces):
        match vm.next(tag=RESULT):
            case vmachine.TaskEnded(worker, status):
                if worker in at_work:
                    print(f"{worker} is lost ({status}), and replaced", file=sys.stderr)
                    waiting.append(at_work.pop(worker))
                    [worker] = vm.spawn_self()
                    vm.watch_task(worker)
                    give(worker)
            case vmachine.Message() as message:
                force, largest = message.obj()
                results[force] = largest
                del at_work[message.source]
                give(message.source)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--forces", type=int, default=32, help="number of parameters")
    parser.add_argument("--steps", type=int, default=20_000, help="steps of each simulation")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--out", help="a file for the results, as CSV; otherwise the output")
    options = parser.parse_args()

    vm = vmachine.init()
    if vm.parent is not None:
        work(vm, options.steps)
        return
    forces = [round(float(force), 6) for force in numpy.linspace(0.5, 1.5, options.forces)]
    results = sweep(vm, forces, options.workers)
    out = open(options.out, "w", newline="") if options.out else contextlib.nullcontext(sys.stdout)
    with out as file:
        table = csv.writer(file)
        table.writerow(["force", "largest angle"])
        table.writerows((force, f"{results[force]:.6f}") for force in forces)


if __name__ == "__main__":
    main()
