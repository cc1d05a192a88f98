"""Matrices that several threads of this program multiply and invert, with several threads of the
numeric library. Prints each step with a checksum of all steps so far."""

import ctypes
import sys
import threading
import zlib

import numpy

SIZE, STEPS = 200, 5

try:
    # More threads than processors.
    ctypes.CDLL("libopenblas.so.0").openblas_set_num_threads(4)
except OSError:
    pass


def turn(matrix):
    for _ in range(2):
        matrix = matrix @ matrix.T
        matrix = numpy.linalg.inv(matrix / numpy.abs(matrix).max() + numpy.eye(SIZE))
        matrix = numpy.sort(numpy.fft.fft2(matrix).real, axis=1) / SIZE
    return matrix


draw = numpy.random.default_rng(7)
parts = [draw.standard_normal((SIZE, SIZE)) for _ in range(2)]
for step in range(STEPS):
    gained = [None] * len(parts)

    def work(index):
        gained[index] = turn(parts[index])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    parts = [part / numpy.abs(part).max() + 0.01 * draw.random((SIZE, SIZE)) for part in gained]
    sum = zlib.crc32(b"".join(numpy.round(part, 6).tobytes() for part in parts))
    print(f"step {step} {sum:08x}", flush=True)
