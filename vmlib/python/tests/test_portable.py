"""Tasks that give their state as an object."""

from conftest import Machine, wait_for

SUM = """
    import os, sys
    import vmachine

    vm = vmachine.init()
    if vm.parent is None:
        [worker] = vm.spawn_self(on="n1")
        assert vm.recv(worker).obj() == "fresh"
        for n in range(1, 6):
            vm.send(n, worker)
            assert vm.recv(worker).obj()[0] == n
            vm.move_task(worker, "n2" if n % 2 else "n1")
        vm.send(None, worker)
        total, processes = vm.recv(worker).obj()
        # Each move has made a new process.
        assert (total, processes) == (15, 6), (total, processes)
        print("done")
    else:
        state = vm.portable(lambda: {"total": 0, "pids": []})
        if not state["pids"]:
            vm.send("fresh", vm.parent)
        state["pids"].append((vm.host, os.getpid()))
        while (n := vm.recv_at(state, vm.parent).obj()) is not None:
            state["total"] += n
            vm.send((n, vm.host), vm.parent)
        vm.send((state["total"], len(set(state["pids"]))), vm.parent)
"""


def test_a_portable_task_goes_on_from_its_state_in_new_processes(machine: Machine) -> None:
    assert machine.run(SUM) == "done\n"


def test_a_portable_program_goes_on_from_its_own_checkpoint(machine: Machine) -> None:
    run = machine.start(
        """
        import vmachine

        vm = vmachine.init()
        state = vm.portable(lambda: [0])
        print("begins with", state[0], vm.tid, flush=True)
        try:
            vm.portable(list)
        except vmachine.PortableError as error:
            assert "already" in str(error)
        while state[0] < 5:
            state[0] += 1
            report = vm.checkpoint_at(state)
            assert report.tasks == 1
            if state[0] == 3:
                print("saved", flush=True)
                vm.recv_at(state)
        state = {"no": lambda: 1}
        try:
            vm.checkpoint_at(state)
        except vmachine.RefusedError as error:
            assert "pickled" in str(error), error
        else:
            raise AssertionError("it was saved")
        print("over", flush=True)
        """
    )
    app = run.line().split()[3]
    run.until("saved")
    machine.vm("kill", app)
    run.end()
    wait_for("the end of the task", lambda: not machine.vm("ps")["tasks"])
    output = machine.restart(app).ends_well().splitlines()
    assert output == [f"begins with 3 {app}", "over"]
