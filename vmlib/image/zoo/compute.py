"""A computation without a call of the library: threads, objects, iterators, and numpy if that is
installed. Prints a line at the start, and the result."""

import decimal
import hashlib
import random
import sys
import threading

try:
    import numpy
except ImportError:
    numpy = None


def squares(until):
    for number in range(until):
        yield number * number


def work(seed, results):
    draw = random.Random(seed)
    words, digest, numbers = {}, hashlib.sha256(), squares(1 << 60)
    for step in range(4000):
        number = draw.getrandbits(64) ^ next(numbers)
        words[number % 500] = [str(number), step]
        if step % 20 == 0:
            with decimal.localcontext() as context:
                context.prec = 60
                digest.update(str(decimal.Decimal(number).sqrt()).encode())
            digest.update(repr(sorted(words.items())[:5]).encode())
        if numpy is not None and step % 50 == 0:
            matrix = numpy.random.default_rng(number).random((40, 40))
            digest.update((matrix @ matrix.T).tobytes())
    results[seed] = digest.hexdigest()


print("ready", flush=True)
results = {}
threads = [threading.Thread(target=work, args=(seed, results)) for seed in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("numpy" if numpy is not None else "no numpy", sys.version_info[:2])
print("result", hashlib.sha256(repr(sorted(results.items())).encode()).hexdigest())
