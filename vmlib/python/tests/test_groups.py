"""Groups and collective calls, and requests."""

from conftest import Machine

GROUP = """
    import numpy
    import vmachine

    vm = vmachine.init()
    if vm.parent is None:
        vm.spawn_self(count=3, on=["n1", "n2"])
    group = vm.join("grid", count=4)
    group.barrier()
    me, n = group.instance, group.size
    assert (n, len(group), group.name) == (4, 4, "grid")
    assert vm.group("grid").tids == group.members.tids
    assert group.members.tids[me] == vm.tid

    # Objects.
    assert group.broadcast({"root": me} if me == 2 else None, root=2) == {"root": 2}
    gathered = group.gather(("of", me), root=1)
    assert gathered == ([("of", m) for m in range(n)] if me == 1 else None)
    assert group.scatter([f"for {m}" for m in range(n)] if me == 3 else None, root=3) == f"for {me}"
    assert group.allgather(me * "x") == ["", "x", "xx", "xxx"]
    assert group.alltoall([(me, m) for m in range(n)]) == [(m, me) for m in range(n)]
    assert group.allreduce(10 ** 30 + me) == 4 * 10 ** 30 + 6
    assert group.allreduce([me], lambda a, b: a + b) == [0, 1, 2, 3]
    assert group.reduce(me, "max", root=2) == (3 if me == 2 else None)
    assert group.scan(me) == sum(range(me + 1))
    assert group.exclusive_scan(f"{me}") == ("012"[:me] or None)

    # Arrays.
    for dtype in ("f8", "f4", "i4", "u1"):
        own = numpy.full((2, 3), me + 1, dtype=dtype)
        total = group.allreduce(own)
        assert total.dtype == own.dtype and (total == 10).all() and total.shape == (2, 3)
        total += 1  # It can be written.
        assert (group.allreduce(own, "product") == 24).all()
    long = numpy.arange(300_000.0) * (me + 1)
    assert numpy.array_equal(group.allreduce(long, "max"), numpy.arange(300_000.0) * 4)
    least = group.reduce(long, "min", root=0)
    assert numpy.array_equal(least, numpy.arange(300_000.0)) if me == 0 else least is None
    assert group.scan(numpy.array([me]))[0] == sum(range(me + 1))
    below = group.exclusive_scan(numpy.array([1.0]))
    assert below is None if me == 0 else below[0] == me
    values, places = group.max_with_place(numpy.array([[-me, me]]))
    assert values.tolist() == [[0, 3]] and places.tolist() == [[0, 3]]
    values, places = group.min_with_place(numpy.array([me % 2, 7]))
    assert values.tolist() == [0, 7] and places.tolist() == [0, 0]

    grid = numpy.full((5, 2), float(me))
    grid.flags.writeable = me != 3
    group.broadcast_array(grid, root=3)
    assert (grid == 3).all()
    rows = group.gather_array(numpy.array([me, me * 2]), root=1)
    assert rows is None if me != 1 else rows.tolist() == [[0, 0], [1, 2], [2, 4], [3, 6]]
    assert group.allgather_array(numpy.float64(me)).tolist() == [0, 1, 2, 3]
    block = numpy.empty((2, 2))
    group.scatter_array(numpy.arange(16.0).reshape(8, 2) if me == 0 else None, block)
    assert block.ravel().tolist() == [4 * me + i for i in range(4)]
    swapped = group.alltoall_array(numpy.arange(4) + 10 * me)
    assert swapped.tolist() == [10 * m + me for m in range(n)]

    # What cannot be.
    def fails(kind, call, text=""):
        try:
            call()
        except kind as error:
            assert text in str(error), error
            return
        raise AssertionError(f"no {kind}")

    fails(vmachine.ArgumentError, lambda: group.scatter([1], root=me), "4 members")
    fails(vmachine.ArgumentError, lambda: group.allreduce(1, "average"), "average")
    fails(vmachine.ArgumentError, lambda: group.allreduce(numpy.zeros(1), "average"), "average")
    fails(vmachine.ArgumentError, lambda: group.allreduce(numpy.zeros(1, "c16")), "c16")
    fails(vmachine.ArgumentError, lambda: group.alltoall_array(numpy.zeros(5)), "(5,)")
    fails(vmachine.ShapeError, lambda: group.allreduce(numpy.zeros(1), "xor"), "f64")
    fails(vmachine.NoInstanceError, lambda: group.broadcast(1, root=9), "9")
    fails(vmachine.GroupRefusedError, lambda: vm.group("nothing"), "nothing")
    group.barrier()
    group.leave()
    fails(vmachine.HandleError, group.barrier)
    if vm.parent is None:
        print("done")
"""


def test_the_members_of_a_group_compute_together(machine: Machine) -> None:
    assert machine.run(GROUP) == "done\n"


def test_a_member_that_ends_is_named_to_the_others(machine: Machine) -> None:
    machine.run(
        """
        import os
        import numpy
        import vmachine

        vm = vmachine.init()
        if vm.parent is None:
            [peer] = vm.spawn_self(on="n2")
        group = vm.join("pair", count=2)
        group.barrier()
        try:
            group.allgather(1) if vm.parent is None else group.allreduce(numpy.zeros(1))
        except vmachine.GroupError as error:
            # One of the two notices it, and tells the other one.
            assert type(error) in (vmachine.OutOfStepError, vmachine.MemberFailedError), error
            assert error.tid in group.members.tids.values()
        else:
            raise AssertionError("no GroupError")
        if vm.parent is None:
            try:
                group.allgather(1)
            except vmachine.EndedError as error:
                assert error.tid == peer and error.status.number == 7, error
            else:
                raise AssertionError("no error")
            group.refresh()
            assert group.allgather(1) == [1]
            group.leave()
        else:
            os._exit(7)
        """
    )


def test_requests_complete_in_any_order_and_a_cancelled_one_loses_no_message(
    machine: Machine,
) -> None:
    machine.run(
        """
        import threading
        import numpy
        import vmachine

        vm = vmachine.init()

        def fails(kind, call, text=""):
            try:
                call()
            except kind as error:
                assert text in str(error), error
                return
            raise AssertionError(f"no {kind}")

        if vm.parent is None:
            workers = vm.spawn_self(count=2, on=["n1", "n2"])
            receives = [vm.start_recv(worker) for worker in workers]
            sends = [vm.start_send(n, worker, 1) for n, worker in enumerate(workers)]
            assert vm.wait_all(sends) == [None, None]
            place, message = vm.wait_any(receives)
            assert message.obj() == 10 * place and message.source == workers[place]
            [other] = [message for message in vm.wait_all(receives) if message]
            assert other.obj() == 10 * (1 - place)
            assert not receives[0].is_open and vm.wait_any(receives) is None
            fails(vmachine.HandleError, receives[0].wait)
            fails(vmachine.HandleError, receives[0].test)

            own = vm.start_recv(vm.tid, 5)
            assert own.test() == (False, None)
            vm.start_send_array(numpy.ones(3), vm.tid, 5).wait()
            vm.start_send_bytes(b"second", vm.tid, 5).wait()
            done, message = own.test()
            assert done and message.array().tolist() == [1, 1, 1]
            cancelled = vm.start_recv(vm.tid, 5)
            cancelled.cancel()
            fails(vmachine.HandleError, cancelled.cancel)
            assert vm.recv(vm.tid, 5).bytes == b"second"

            # One call with a request at a time.
            waits = vm.start_recv(vm.tid, 6)
            fails(vmachine.HandleError, lambda: vm.wait_any([waits, waits]), "another call")
            waiter = threading.Thread(target=waits.wait)
            waiter.start()
            while True:
                try:
                    assert waits.test() == (False, None)
                except vmachine.HandleError as error:
                    assert "another call" in str(error)
                    break
            vm.send(1, vm.tid, 6)
            waiter.join()
            ended = vm.start_recv(workers[0])
            fails(vmachine.EndedError, ended.wait)
            many = [vm.start_recv(vm.tid, 7) for _ in range(4095)]
            fails(vmachine.TooManyRequestsError, lambda: vm.start_recv(vm.tid, 7), "4096")
        else:
            vm.send(vm.recv(vm.parent, 1).obj() * 10, vm.parent)
        """
    )
