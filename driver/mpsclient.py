"""A CUDA program of the smallest kind: it says that it is there, waits, and ends. `python3 -m driver.mpsclient LIBRARY`

It has a context, a MiB of memory and a kernel that ran: whoever started it sees by then whether the MPS daemon counts it
among its clients. It prints `ready` or what went wrong, and ends with its standard input.
"""

import ctypes
import sys

_PTX = b".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n\0"
_MIB = 1 << 20
READY = "ready"


def main(library: str) -> int:
    """What is called, and the number that CUDA answered, where that is not 0."""
    cuda = ctypes.CDLL(library)
    context, module, kernel, memory = (ctypes.c_void_p() for _ in range(4))
    for name, *arguments in (
        ("cuInit", 0),
        ("cuCtxCreate_v2", ctypes.byref(context), 0, 0),
        ("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(_MIB)),
        ("cuModuleLoadData", ctypes.byref(module), _PTX),
        ("cuModuleGetFunction", ctypes.byref(kernel), module, b"nothing"),
        ("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None),
        ("cuCtxSynchronize",),
    ):
        if error := getattr(cuda, name)(*arguments):
            print(f"{name} answers {error}", flush=True)  # noqa: T201 the answer to whoever started it
            return 1
    print(READY, flush=True)  # noqa: T201
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
