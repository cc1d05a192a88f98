"""The program of a worker of a :class:`vmachine.Pool`."""

from .worker import main

if __name__ == "__main__":
    main()
