"""Python tasks with numpy that are moved, saved, suspended and restarted in the midst of their work."""

import subprocess

from conftest import Machine, wait_for

#: A master and a worker on another host that pass a matrix back and forth, until a file is there.
WORK = """
    import os, sys
    import numpy
    import vmachine

    vm = vmachine.init()
    a = numpy.random.default_rng(1).normal(size=(120, 120)) / 11
    if vm.parent is None:
        [peer] = vm.spawn_self(on="n2")
        b = a.copy()
        step = 0
        while not os.path.exists(sys.argv[1]):
            vm.send_array(b, peer, step)
            vm.recv_into(b, peer, step)
            print("step", step, flush=True)
            step += 1
        vm.send_bytes(b"", peer, step)
        expected = a.copy()
        for again in range(step):
            expected = numpy.tanh(expected @ a + again % 7)
        assert numpy.array_equal(b, expected)
        print("right", flush=True)
    else:
        step = 0
        while len(message := vm.recv(vm.parent, step)) > 0:
            b = message.array("f8", (120, 120))
            vm.send_array(numpy.tanh(b @ a + step % 7), vm.parent, step)
            step += 1
"""


def master(machine: Machine) -> str:
    """The tid of the only master."""
    rows = machine.vm("ps")["tasks"]
    [row] = [row for row in rows if row["parent"] is None]
    return row["tid"]


def kill(machine: Machine) -> None:
    """Ends all tasks."""
    tids = [row["tid"] for row in machine.vm("ps")["tasks"]]
    # A worker may end by itself when its master does.
    subprocess.run(machine.words("kill", *tids), capture_output=True, check=False)
    wait_for("the end of all tasks", lambda: not machine.vm("ps")["tasks"])


def test_a_program_goes_on_after_each_of_its_tasks_was_moved(machine: Machine) -> None:
    end = machine.folder / "end1"
    run = machine.start(WORK, str(end))
    run.until("step 5")
    for _ in range(3):
        for row in machine.vm("ps")["tasks"]:
            machine.vm("move", row["tid"])
    end.touch()
    assert "right" in run.ends_well()


def test_a_program_goes_on_from_a_checkpoint(machine: Machine) -> None:
    end = machine.folder / "end2"
    run = machine.start(WORK, str(end))
    run.until("step 10")
    app = master(machine)
    machine.vm("checkpoint", app)
    kill(machine)
    _, before, _ = run.end()
    restarted = machine.restart(app)
    first = int(restarted.line().split()[1])
    # It has printed that step before, or was about to.
    assert 10 < first <= int(before.splitlines()[-1].split()[1]) + 1
    for step in range(first + 1, first + 10):
        assert restarted.line() == f"step {step}"
    end.touch()
    assert "right" in restarted.ends_well()


def test_a_program_that_saves_itself_knows_where_it_is(machine: Machine) -> None:
    run = machine.start(
        """
        import numpy
        import vmachine

        vm = vmachine.init()
        numbers = numpy.arange(1000.0)
        assert vm.can_move() == []
        report = vm.checkpoint()
        if report is not None:
            assert report.tasks == 1 and report.bytes > 0
            numbers[:] = -1
            print("saved", vm.tid, flush=True)
            vm.recv()
        print("restored", numbers.sum(), flush=True)
        moved = vm.move_task(host="n2")
        assert vm.host == moved.target and numbers.sum() == 499500.0
        """
    )
    [line] = run.until("saved")
    app = line.split()[1]
    kill(machine)
    run.end()
    assert machine.restart(app).ends_well() == "restored 499500.0\n"


def test_a_pool_goes_on_from_a_checkpoint(machine: Machine) -> None:
    end = machine.folder / "end3"
    run = machine.start(
        """
        import os, sys, time
        import vmachine

        def triple(n):
            time.sleep(0.01)
            return 3 * n

        if __name__ == "__main__":
            with vmachine.Pool(3) as pool:
                done = 0
                while done < 20 or not os.path.exists(sys.argv[1]):
                    assert list(pool.map(triple, range(9))) == [3 * n for n in range(9)]
                    done += 1
                    print("round", done, flush=True)
            print("all", done, flush=True)
        """,
        str(end),
    )
    run.until("round 5")
    app = master(machine)
    machine.vm("checkpoint", app)
    kill(machine)
    run.end()
    restarted = machine.restart(app)
    assert int(restarted.line().split()[1]) >= 5
    end.touch()
    assert "all" in restarted.ends_well()


def test_threads_that_know_nothing_of_the_machine_go_on_after_moves(machine: Machine) -> None:
    run = machine.start(
        """
        import threading, time, zlib
        import numpy
        import vmachine

        vm = vmachine.init()
        stop = threading.Event()
        data = bytes(range(256)) * 40
        expected = zlib.compress(data)
        rounds = [0] * 6

        def compress(n):
            # Allocates again and again, most of the time without the interpreter's lock.
            while not stop.is_set():
                assert zlib.compress(data + bytes(n)) == zlib.compress(data + bytes(n))
                rounds[n] += 1

        threads = [threading.Thread(target=compress, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for n in range(4):
            vm.move_task(host="n2" if vm.host == 1 else "n1")
            before = list(rounds)
            while any(now <= then for now, then in zip(rounds, before)):
                time.sleep(0.001)
        stop.set()
        for thread in threads:
            thread.join()
        assert zlib.compress(data) == expected
        print("all go on")
        """
    )
    assert "all go on" in run.ends_well()


def test_functions_are_called_around_saves_and_may_refuse_one(machine: Machine) -> None:
    machine.run(
        """
        import vmachine

        vm = vmachine.init()
        if vm.parent is None:
            [peer] = vm.spawn_self(on="n1")
            assert vm.recv(peer).obj() == "ready"
            vm.move_task(peer, "n2")
            assert vm.checkpoint() is not None
            vm.send("what", peer)
            assert vm.recv(peer).obj() == ["before", "resumed", "before", "after"]
            try:
                vm.move_task(peer, "n1")
            except vmachine.RefusedError as error:
                assert "not now" in str(error), error
            else:
                raise AssertionError("it was moved")
            vm.send("end", peer)
            assert vm.recv(peer).obj() == 2
        else:
            calls = []
            vm.around_saves(lambda: calls.append("before"), lambda: calls.append("after"),
                            lambda: calls.append("resumed"))
            vm.send("ready", vm.parent)
            vm.recv(vm.parent)
            vm.send(calls, vm.parent)

            def refuse():
                raise RuntimeError("not now")

            vm.around_saves(refuse)
            vm.recv(vm.parent)
            vm.send(vm.host, vm.parent)
        """
    )
