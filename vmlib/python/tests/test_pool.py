"""The pool of workers: results, failures, lost workers and hosts."""

from conftest import Machine

HEAD = """
    import os, signal, sys, threading, time
    import vmachine

    def square(n):
        return n * n

    def add(a, b=0, *, c=0):
        return a + b + c

    def fail(text):
        raise LookupError(text)

    def die_first(path, n):
        # The first worker that comes here ends.
        try:
            os.close(os.open(f"{path}/{n}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return n
        os._exit(9)

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def where(_=None):
        time.sleep(0.05)
        return vmachine.init().host

    def setup(value):
        global LEVEL
        LEVEL = value

    def level():
        return LEVEL
"""


def program(body: str) -> str:
    """A program with those functions."""
    lines = [f"    {line}" if line.strip() else "" for line in body.strip("\n").splitlines()]
    return HEAD + "\n    if __name__ == '__main__':\n" + "\n".join(lines) + "\n"


def test_calls_are_made_in_workers_of_all_hosts(machine: Machine) -> None:
    machine.run(
        program(
            """
        vm = vmachine.init()
        with vmachine.Pool(4) as pool:
            assert len(pool.workers) == 4
            assert list(pool.map(square, range(50))) == [n * n for n in range(50)]
            assert list(pool.map(square, range(101), chunksize=10)) == [n * n for n in range(101)]
            assert list(pool.map(add, [1, 2], [10, 20])) == [11, 22]
            assert pool.submit(add, 1, b=2, c=3).result() == 6
            assert set(pool.map(where, range(40))) == {1, 2}
            futures = [pool.submit(square, n) for n in range(10)]
            assert {f.result() for f in __import__("concurrent.futures").futures.as_completed(futures)} == {
                n * n for n in range(10)}
            # The program's own messages are not the pool's.
            vm.send("own", vm.tid)
            assert vm.recv().obj() == "own" and vm.try_recv() is None
        assert pool.workers == []
        try:
            pool.submit(square, 1)
        except RuntimeError as error:
            assert "shut down" in str(error)
        with vmachine.Pool(1, on="n2", initializer=setup, initargs=(7,)) as pool:
            assert pool.submit(level).result() == 7 and pool.submit(where).result() == 2
        """
        )
    )


def test_an_exception_of_a_job_has_the_traceback_of_its_worker(machine: Machine) -> None:
    machine.run(
        program(
            """
        with vmachine.Pool(1) as pool:
            failed = pool.submit(fail, "no such thing").exception()
            assert type(failed) is LookupError and failed.args == ("no such thing",)
            assert "in fail" in str(failed.__cause__)
            assert isinstance(pool.submit(sys.exit, 3).exception(), SystemExit)
            assert "pickle" in str(pool.submit(threading.Lock).exception())
            try:
                pool.submit(lambda: 1)
            except vmachine.PickleError as error:
                assert "cloudpickle" in str(error)
            assert pool.submit(square, 3).result() == 9
        """
        )
    )


def test_a_lost_worker_is_replaced_and_its_job_done_again(machine: Machine, tmp_path) -> None:
    machine.run(
        program(
            f"""
        with vmachine.Pool(3) as pool:
            futures = [pool.submit(die_first, {str(tmp_path)!r}, n) for n in range(6)]
            assert [future.result() for future in futures] == list(range(6))
            # An idle worker is replaced, too.
            vm = vmachine.init()
            before = pool.workers
            vm.kill(before[0])
            while len(pool.workers) < 3 or before[0] in pool.workers:
                time.sleep(0.01)
            assert list(pool.map(square, range(9))) == [n * n for n in range(9)]
        """
        )
    )


def test_a_job_that_ends_its_workers_fails_after_so_many_attempts(machine: Machine) -> None:
    machine.run(
        program(
            """
        with vmachine.Pool(2, attempts=2) as pool:
            lost = pool.submit(die).exception()
            assert type(lost) is vmachine.WorkerLostError
            assert lost.attempts == 2 and lost.status.number == signal.SIGKILL
            assert "2 workers" in str(lost)
            assert pool.submit(square, 4).result() == 16
        """
        )
    )


def test_a_pool_whose_workers_cannot_begin_says_why(machine: Machine) -> None:
    machine.run(
        program(
            """
        for initializer, args in ((fail, ("bad setup",)), (die, ())):
            with vmachine.Pool(2, initializer=initializer, initargs=args) as pool:
                try:
                    pool.submit(square, 1).result()
                except vmachine.BrokenPoolError as error:
                    assert "begin" in str(error)
                    if args:
                        assert "bad setup" in str(error.__cause__)
                else:
                    raise AssertionError("no BrokenPoolError")
        """
        )
    )


def test_calls_that_wait_can_be_cancelled(machine: Machine) -> None:
    machine.run(
        program(
            """
        pool = vmachine.Pool(1)
        first = pool.submit(time.sleep, 0.3)
        while not first.running():
            time.sleep(0.01)
        others = [pool.submit(square, n) for n in range(5)]
        assert others[0].cancel()
        pool.shutdown(cancel_futures=True)
        assert first.result() is None and all(other.cancelled() for other in others)
        """
        )
    )


def test_workers_and_their_pool_are_moved_while_jobs_run(machine: Machine) -> None:
    machine.run(
        program(
            """
        vm = vmachine.init()
        with vmachine.Pool(2) as pool:
            futures = [pool.submit(where, n) for n in range(60)]
            for _ in range(2):
                for tid in [*pool.workers, vm.tid]:
                    vm.move_task(tid)
            assert {future.result() for future in futures} <= {1, 2}
            assert list(pool.map(square, range(20))) == [n * n for n in range(20)]
        """
        )
    )


def test_the_jobs_of_a_lost_host_are_done_on_the_others(three: Machine) -> None:
    run = three.start(
        program(
            """
        vm = vmachine.init()
        with vmachine.Pool(6, on=["n1", "n2", "n3"]) as pool:
            assert set(pool.map(where, range(30))) == {1, 2, 3}
            futures = [pool.submit(where) for _ in range(120)]
            print("busy", flush=True)
            hosts = [future.result() for future in futures]
            assert len(hosts) == 120
            assert set(pool.map(where, range(30))) == {1, 2}
        print("done", flush=True)
        """
        )
    )
    run.until("busy")
    three.lose("n3")
    assert "done" in run.ends_well()
