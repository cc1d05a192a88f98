"""A first program: tasks start, exchange messages of each kind, and are moved."""

from conftest import Machine

SQUARES = """
    import numpy
    import vmachine

    vm = vmachine.init()
    if vm.parent is None:
        workers = vm.spawn_self(count=3)
        for n, worker in enumerate(workers):
            vm.send({"n": n, "to": vm.tid}, worker, 1)
            vm.send_array(numpy.full(100_000, n, dtype="f8"), worker, 2)
            vm.send_bytes(b"last", worker, 3)
        for _ in workers:
            answer = vm.recv(tag=4)
            n, total = answer.obj()
            assert answer.source == workers[n] and total == n * 100_000.0, (n, total)
        print("all came")
    else:
        asked = vm.recv(vm.parent, 1).obj()
        assert asked == {"n": vm.index, "to": vm.parent}, asked
        numbers = numpy.empty(100_000)
        envelope = vm.recv_into(numbers, vm.parent, 2)
        assert envelope == (vm.parent, 2, 800_000), envelope
        assert vm.recv(vm.parent).bytes == b"last"
        vm.send((asked["n"], float(numbers.sum())), vm.parent, 4)
"""


def test_objects_bytes_and_arrays_go_to_tasks_of_all_hosts_and_back(machine: Machine) -> None:
    assert machine.run(SQUARES) == "all came\n"


MOVED = """
    import numpy
    import vmachine

    vm = vmachine.init()
    if vm.parent is None:
        [worker] = vm.spawn_self(on="n1")
        a = numpy.arange(90_000, dtype="f8").reshape(300, 300) / 1e5
        vm.send_array(a, worker)
        places = []
        for step in range(6):
            vm.send(step, worker)
            step_there, host, trace = vm.recv(worker).obj()
            assert step_there == step
            places.append(host)
            # It computes while it is moved.
            report = vm.move_task(worker, "n2" if host == 1 else "n1")
            assert report.source != report.target
        vm.send(None, worker)
        product = numpy.empty_like(a)
        vm.recv_into(product, worker)
        expected = a.copy()
        for step in range(6):
            expected = expected @ a * 0.01 + step
        assert numpy.array_equal(product, expected)
        print("places", places)
    else:
        a = vm.recv(vm.parent).array("f8", (300, 300))
        product = a.copy()
        while (step := vm.recv(vm.parent).obj()) is not None:
            product = product @ a * 0.01 + step
            vm.send((step, vm.host, float(product.trace())), vm.parent)
        vm.send_array(product, vm.parent)
"""


def test_a_task_with_numpy_is_moved_again_and_again_and_goes_on(machine: Machine) -> None:
    assert machine.run(MOVED) == "places [1, 2, 1, 2, 1, 2]\n"
