"""Messages of each kind, and what is wrong with them."""

from conftest import Machine


def test_a_receive_selects_by_source_and_tag_and_ends_in_time(machine: Machine) -> None:
    machine.run(
        """
        import time, vmachine
        from vmachine import ANY

        vm = vmachine.init()
        assert vmachine.init() is vm and vm.parent is None and vm.app == vm.tid and vm.index == 0
        assert str(vm.tid).startswith("t") and int(str(vm.tid)[1:].split(".")[0]) == vm.host
        for tag in (1, 2, 3):
            vm.send(tag, vm.tid, tag)
        assert vm.recv(ANY, 2).obj() == 2
        assert vm.probe(tag=3)[:2] == (vm.tid, 3)
        assert [vm.recv().obj() for _ in range(2)] == [1, 3]
        assert vm.try_recv() is None and vm.probe() is None
        for call in (vm.recv, vm.recv_event, vm.next, lambda timeout: vm.recv_into(bytearray(1), timeout=timeout)):
            begun = time.monotonic()
            try:
                call(timeout=0.05)
            except vmachine.Timeout as error:
                assert isinstance(error, TimeoutError) and isinstance(error, vmachine.Error)
                assert time.monotonic() - begun >= 0.05
            else:
                raise AssertionError("no Timeout")
        for wrong in (lambda: vm.recv(None), lambda: vm.recv("t1.1"), lambda: vm.send(1, None),
                      lambda: vm.send(1, "t1.1"), lambda: vm.recv(timeout="1")):
            try:
                wrong()
            except TypeError:
                continue
            raise AssertionError("no TypeError")
        try:
            vm.recv(timeout=float("nan"))
        except vmachine.ArgumentError as error:
            assert "NaN" in str(error)
        """
    )


def test_every_kind_of_buffer_travels_and_what_cannot_travel_is_an_exception(
    machine: Machine,
) -> None:
    machine.run(
        """
        import array, threading
        import numpy
        import vmachine

        vm = vmachine.init()
        me = vm.tid

        def fails(kind, call, text=""):
            try:
                call()
            except kind as error:
                assert text in str(error), error
                assert isinstance(error, vmachine.Error)
                return error
            raise AssertionError(f"no {kind}")

        for data in (b"", b"abc", bytearray(b"abc"), memoryview(b"xabc")[1:], array.array("d", [1.5, 2])):
            vm.send_bytes(data, me)
            assert vm.recv().bytes == bytes(memoryview(data).cast("B") if len(data) else b"")
        for dtype in ("f8", "f4", "i1", "u2", "i8", "c16", "bool", "M8[s]"):
            sent = numpy.ones((3, 4), dtype=dtype)
            vm.send_array(sent, me)
            got = vm.recv().array(dtype, (3, 4))
            assert got.dtype == sent.dtype and (got == sent).all() and not got.flags.writeable
        for empty in (numpy.empty(0), numpy.empty((0, 5), "i4"), array.array("d")):
            vm.send_array(empty, me)
            assert vm.recv().array("f8").shape == (0,)
        vm.send_array(numpy.float64(2.5), me)
        assert vm.recv().array()[0] == 2.5

        grid = numpy.arange(12.0).reshape(3, 4)
        fails(vmachine.ArgumentError, lambda: vm.send_array(grid.T, me), "ascontiguousarray")
        fails(vmachine.ArgumentError, lambda: vm.send_array(grid[:, 1], me), "contiguous")
        fails(vmachine.ArgumentError, lambda: vm.send_array(numpy.array([object()]), me), "send")
        fails(vmachine.ArgumentError, lambda: vm.send_array(grid.astype(">f8"), me), "byte order")
        fails(vmachine.ArgumentError, lambda: vm.send_array([1, 2], me), "list")
        fails(vmachine.ArgumentError, lambda: vm.send_bytes("text", me), "str")
        frozen = numpy.zeros(4)
        frozen.flags.writeable = False
        for read_only in (frozen, b"1234", memoryview(b"1234")):
            fails(vmachine.ArgumentError, lambda: vm.recv_into(read_only), "read-only")
        assert vm.probe() is None

        fails(vmachine.PickleError, lambda: vm.send(threading.Lock(), me), "lock")
        fails(vmachine.PickleError, lambda: vm.send(vm, me), "vm.tid")

        vm.send_bytes(b"\\x80\\x05garbage", me, 9)
        fails(vmachine.MessageError, vm.recv().obj, "tag 9")
        vm.send_bytes(b"", me)
        fails(vmachine.MessageError, vm.recv().obj)
        vm.send_bytes(b"cvmachine\\nNothing\\n.", me)
        fails(vmachine.MessageError, vm.recv().obj, "Nothing")
        vm.send_bytes(b"12345", me)
        message = vm.recv()
        fails(vmachine.MessageError, lambda: message.array("f8"), "f8")
        fails(vmachine.MessageError, lambda: message.array("u1", (2, 2)), "(2, 2)")
        fails(vmachine.MessageError, lambda: message.array("O"))
        fails(vmachine.MessageError, lambda: message.array("nonsense"))

        vm.send_array(numpy.arange(3.0), me, 5)
        fails(vmachine.BufferTooShortError, lambda: vm.recv_into(numpy.zeros(2)), "24 bytes")
        longer = numpy.full((2, 3), -1.0)
        assert vm.recv_into(longer, me, 5) == (me, 5, 24)
        assert (longer == [[0, 1, 2], [-1, -1, -1]]).all()

        fails(vmachine.NoTaskError, lambda: vm.send(1, 0))
        fails(vmachine.RefusedError, lambda: vm.move_task(me, "nowhere"), "nowhere")
        error = fails(vmachine.SpawnError, lambda: vm.spawn("no such program"), "no such program")
        assert error.kind == "no-such-program", error.kind
        fails(vmachine.ArgumentError, lambda: vm.spawn("python3", count=-1))
        fails(vmachine.SpawnError, lambda: vm.spawn("python3", count=0))
        unknown = vmachine.Tid(int(me) + 1000)
        error = fails(vmachine.EndedError, lambda: vm.recv(unknown), "no such task")
        assert error.tid == unknown and error.status.kind == "unknown" and not error.status.in_order
        vm.exit()
        fails(vmachine.LeftError, lambda: vm.recv())
        """
    )


def test_a_message_of_many_megabytes_is_read_without_a_copy(machine: Machine) -> None:
    machine.run(
        """
        import pickle, numpy, vmachine

        vm = vmachine.init()
        if vm.parent is None:
            [peer] = vm.spawn_self()
            numbers = numpy.arange(4_000_000.0)
            vm.send_array(numbers, peer)
            numbers[:] = 0.0  # The message has its own copy.
            back = vm.recv(peer)
            view = back.data
            got = numpy.frombuffer(view, "f8")
            del back, view
            assert got[1] == 1.0 and got[-1] == 3_999_999.0 and got.sum() == 7999998000000.0
            vm.send({"tid": peer, "array": got}, [vm.tid, peer])
            for sent in (vm.recv(vm.tid).obj(), vm.recv(peer).obj()):
                assert sent["tid"] == peer and repr(sent["tid"]) == str(peer)
                assert numpy.array_equal(sent["array"], got)
            assert pickle.loads(pickle.dumps(peer)) == peer
        else:
            vm.send_bytes(vm.recv(vm.parent).data, vm.parent)
            vm.send(vm.recv(vm.parent).obj(), vm.parent)
        """
    )


def test_the_ends_of_tasks_come_after_their_messages(machine: Machine) -> None:
    machine.run(
        """
        import os, signal, sys, vmachine

        vm = vmachine.init()
        if vm.parent is None:
            tids = vm.spawn_self(["worker"], count=4, on=["n2", "n1"], env={"LEVEL": "3"}, dir="/")
            for tid in tids:
                vm.watch_task(tid)
            found = {}
            last = []
            while len(found) < 4:
                match vm.next(timeout=30):
                    case vmachine.TaskEnded(tid, status):
                        found[tid] = status
                    case message:
                        last.append((message.source, message.obj()))
                        if message.source == tids[3]:
                            vm.kill(tids[3])
                        if message.source == tids[2]:
                            vm.signal(tids[2], signal.SIGTERM)
            assert dict(last) == {tid: (index, tids, "3", "/") for index, tid in enumerate(tids)}
            ends = [(found[tid].kind, found[tid].number) for tid in tids]
            assert ends == [("left", 0), ("left", 3), ("signal", 15), ("signal", 9)], ends
            assert [found[tid].in_order for tid in tids] == [True, False, False, False]
            assert str(found[tids[3]]) == "killed by signal 9"
            try:
                vm.recv(tids[1])
            except vmachine.EndedError as error:
                assert error.tid == tids[1] and error.status.number == 3
            hosts = vm.hosts()
            assert [host.name for host in hosts] == ["n1", "n2"] and hosts[0].id == 1
        else:
            assert sys.argv[1:] == ["worker"]
            told = (vm.index, vm.siblings(), os.environ["LEVEL"], os.getcwd())
            vm.send(told, vm.parent)
            if vm.index > 1:
                vm.recv(vm.tid)
            sys.exit(3 * vm.index)
        """
    )


def test_a_forked_child_is_no_task_and_its_parent_goes_on(machine: Machine) -> None:
    machine.run(
        """
        import os, sys, vmachine

        vm = vmachine.init()
        vm.send("mine", vm.tid)
        child = os.fork()
        if child == 0:
            try:
                vm.recv()
            except vmachine.LeftError as error:
                assert "forked" in str(error)
                sys.exit(5)
            sys.exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
        assert vm.recv().obj() == "mine"
        """
    )


def test_without_a_daemon_the_error_says_how_to_start(tmp_path) -> None:
    import os
    import subprocess
    import sys

    env = {**os.environ, "VM_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", "import vmachine; vmachine.init()"],
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "vmachine.errors.InitError" in done.stderr and "vm run" in done.stderr, done.stderr
