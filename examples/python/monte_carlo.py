"""Estimates pi by random points, with a pool of workers on all hosts.

    vm run python3 examples/python/monte_carlo.py --points 100000000

Every batch has a random generator of its own, seeded by its number: the result is the same whatever the
number of workers, whoever does a batch, and however often workers are moved or lost meanwhile.
"""

import argparse
import time

import vmachine


def inside(batch: int, points: int) -> int:
    """How many of the points of a batch are in the quarter of the unit circle."""
    import numpy  # In the workers alone.

    x, y = numpy.random.default_rng(batch).random((2, points))
    return int(numpy.count_nonzero(x * x + y * y <= 1.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=20_000_000)
    parser.add_argument("--batch", type=int, default=200_000, help="points of one job")
    parser.add_argument("--workers", type=int, help="otherwise one for each processor")
    options = parser.parse_args()

    vmachine.init()
    batches = max(1, options.points // options.batch)
    begin = time.monotonic()
    with vmachine.Pool(options.workers) as pool:
        hits = sum(pool.map(inside, range(batches), [options.batch] * batches))
    points = batches * options.batch
    print(f"pi is about {4 * hits / points:.6f}: {hits} of {points} points")
    print(f"{batches} jobs in {time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    main()
