"""Serves this host's processor as a ggml device: python3 server.py <libraries> <port>."""

import ctypes
import sys
from pathlib import Path


def main() -> None:
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    # each library finds those below it because they are loaded already
    for name in ("base", "cpu", "", "rpc"):
        loaded = ctypes.CDLL(str(next(folder.glob(f"libggml{'-' if name else ''}{name}.so*"))), ctypes.RTLD_GLOBAL)
        if name == "cpu":
            cpu = loaded
        if name == "base":
            base = loaded
    cpu.ggml_backend_cpu_reg.restype = ctypes.c_void_p
    base.ggml_backend_reg_dev_get.restype = ctypes.c_void_p
    base.ggml_backend_reg_dev_get.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    device = base.ggml_backend_reg_dev_get(cpu.ggml_backend_cpu_reg(), 0)
    serve = loaded.ggml_backend_rpc_start_server
    serve.restype = None
    serve.argtypes = (
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.POINTER(ctypes.c_void_p),
    )
    serve(f"127.0.0.1:{port}".encode(), None, 1, 1, (ctypes.c_void_p * 1)(device))


if __name__ == "__main__":
    main()
