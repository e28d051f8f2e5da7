"""A port for a program that is told its number before it listens."""

import random
import socket

_BELOW_THE_KERNELS_OWN = range(15_000, 30_000)
_given: set[int] = set()


def free() -> int:
    """One that no connection of this machine takes meanwhile: the kernel gives those higher numbers. None comes twice."""
    while True:
        if (port := random.choice(_BELOW_THE_KERNELS_OWN)) in _given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
        _given.add(port)
        return port
