"""Ctrl-C and other signals while a call waits, and calls of several threads."""

from conftest import Machine

SIGNALS = """
    import _thread, os, signal, sys, threading, time
    import vmachine

    vm = vmachine.init()

    def interrupted(call, *args, **kwargs):
        def interrupt():
            # The call waits by then, or the signal comes before it; both must end it.
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGINT)
        thread = threading.Thread(target=interrupt)
        begun = time.monotonic()
        try:
            thread.start()
            call(*args, **kwargs)
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("no KeyboardInterrupt")
        finally:
            thread.join()
        assert time.monotonic() - begun < 5

    if vm.parent is not None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        vm.send("ready", vm.parent)
        # Outside of the library it takes nothing.
        signal.sigwait({signal.SIGUSR1})
        vm.send(len(vm.recv(vm.parent, 1)), vm.parent)
        sys.exit()
    interrupted(vm.recv)
    interrupted(vm.recv, vm.tid, 7, timeout=60)
    interrupted(vm.recv_into, bytearray(10))
    interrupted(vm.recv_event)
    interrupted(vm.next)
    request = vm.start_recv(vm.tid, 9)
    interrupted(request.wait)
    interrupted(vm.wait_any, [request])
    interrupted(vm.wait_all, [request])
    vm.send("mine", vm.tid, 9)
    assert request.wait().obj() == "mine"

    [peer] = vm.spawn_self()
    assert vm.recv(peer).obj() == "ready"
    interrupted(vm.send_bytes, bytes(30_000_000), peer, 1)
    group = vm.join("alone")
    interrupted(group.await_members, 2)
    vm.signal(peer, signal.SIGUSR1)
    vm.send_bytes(bytes(20_000_000), peer, 1)
    assert vm.recv(peer).obj() == 20_000_000

    # A handler that raises nothing does not end the call, and may make calls itself.
    signal.signal(signal.SIGUSR1, lambda *_: vm.send("by the handler", vm.tid, 3))
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    assert vm.recv(tag=3).obj() == "by the handler"

    # Other threads run while one waits.
    def answer():
        for n in range(20):
            assert vm.recv(vm.tid, 4).obj() == n
            vm.send(n, vm.tid, 5)
    thread = threading.Thread(target=answer)
    thread.start()
    for n in range(20):
        vm.send(n, vm.tid, 4)
        assert vm.recv(vm.tid, 5).obj() == n
    thread.join()
    print("done")
"""


def test_ctrl_c_ends_every_call_that_waits_and_loses_no_message(machine: Machine) -> None:
    assert machine.run(SIGNALS) == "done\n"
