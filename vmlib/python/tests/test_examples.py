"""The examples in `examples/python`, whose tasks are moved meanwhile."""

import csv
import threading

from conftest import ROOT, Machine

EXAMPLES = ROOT / "examples" / "python"


def moved_meanwhile(machine: Machine, name: str, *words: str) -> str:
    """The output of an example, one of whose tasks after the other is moved while it runs."""
    run = machine.start(str(EXAMPLES / name), *words)
    ended = threading.Event()
    moved = []

    def move() -> None:
        while not ended.is_set():
            for row in machine.vm("ps")["tasks"]:
                # A task may not have begun, or may have ended.
                moved.append(machine.try_vm("move", row["tid"]))

    mover = threading.Thread(target=move)
    mover.start()
    try:
        output = run.ends_well()
    finally:
        ended.set()
        mover.join()
    assert any(moved)
    return output


def test_the_estimate_of_pi_is_the_same_whatever_is_moved(machine: Machine) -> None:
    words = ["--points", "6000000", "--batch", "100000", "--workers"]
    moved = moved_meanwhile(machine, "monte_carlo.py", *words, "3").splitlines()
    alone = machine.run(str(EXAMPLES / "monte_carlo.py"), *words, "1").splitlines()
    assert moved[0] == alone[0] and moved[0].startswith("pi is about 3.14")


def test_the_sweep_has_a_result_for_each_parameter_whatever_is_moved(machine: Machine) -> None:
    out = machine.folder / "sweep.csv"
    words = ["--forces", "12", "--steps", "15000", "--workers", "3"]
    moved_meanwhile(machine, "sweep.py", *words, "--out", str(out))
    with open(out, newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["force", "largest angle"] and len(rows) == 13
    assert [float(row[0]) for row in rows[1:]] == sorted(float(row[0]) for row in rows[1:])
    alone = machine.run(str(EXAMPLES / "sweep.py"), *words)
    assert list(csv.reader(alone.splitlines())) == rows
