"""Multiplies two matrices by ggml and prints a digest of the product: python3 multiply.py <libraries> here|remote [times].

Remote: on the card at GGML_RPC_SERVERS, where a relay carries what ggml says to the card's door. Without one: on the card
whose door REMOTE_GPU_ENDPOINTS names, by the certificate in the folder REMOTE_GPU_CREDENTIALS; ggml speaks plain TCP, so a
thread of this program carries its bytes there by mutual TLS.
"""

import contextlib
import ctypes
import hashlib
import os
import random
import socket
import ssl
import struct
import sys
import threading
from pathlib import Path
from typing import Any

ROWS, INNER, COLUMNS = 64, 256, 32
_F32 = 0


class _Parameters(ctypes.Structure):
    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


def _libraries(folder: Path) -> dict[str, Any]:
    found = {}
    for name in ("base", "cpu", "", "rpc"):
        file = next(folder.glob(f"libggml{'-' if name else ''}{name}.so*"))
        found[name] = ctypes.CDLL(str(file), ctypes.RTLD_GLOBAL)
    return found


def _call(library: Any, name: str, *arguments: Any, result: Any = ctypes.c_void_p) -> Any:
    function = getattr(library, name)
    function.restype = result
    return function(*arguments)


def carry(host: str, port: int, credentials: Path) -> int:
    """A port on loopback whose connections end at the card's door."""
    trust = ssl.create_default_context(cafile=str(credentials / "ca.crt"))
    trust.load_cert_chain(str(credentials / "tls.pem"))
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := one.recv(1 << 16):
                other.sendall(chunk)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def take() -> None:
        while True:
            inside, _ = listener.accept()
            inside.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            outside = trust.wrap_socket(socket.create_connection((host, port), 10), server_hostname=host)
            outside.settimeout(None)
            outside.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for ends in ((inside, outside), (outside, inside)):
                threading.Thread(target=pump, args=ends, daemon=True).start()

    threading.Thread(target=take, daemon=True).start()
    return int(listener.getsockname()[1])


def backend(ggml: dict[str, Any], *, remote: bool) -> Any:
    if not remote:
        return ctypes.c_void_p(_call(ggml["cpu"], "ggml_backend_cpu_init"))
    near = os.environ.get("GGML_RPC_SERVERS", "").split(",")[0]
    if not near:
        host, _, port = os.environ["REMOTE_GPU_ENDPOINTS"].split(",")[0].rpartition(":")
        near = f"127.0.0.1:{carry(host.strip('[]'), int(port), Path(os.environ['REMOTE_GPU_CREDENTIALS']))}"
    made = _call(ggml["rpc"], "ggml_backend_rpc_init", near.encode(), ctypes.c_uint32(0))
    if not made:
        sys.exit("the remote card cannot be reached")
    return ctypes.c_void_p(made)


def multiply(ggml: dict[str, Any], on: Any, seed: int) -> bytes:
    """The product's bytes, for matrices that follow from the seed."""
    base, size = ggml["base"], ctypes.c_int64
    memory = _call(base, "ggml_init", _Parameters(16 << 20, None, True))
    context = ctypes.c_void_p(memory)
    a = ctypes.c_void_p(_call(base, "ggml_new_tensor_2d", context, _F32, size(INNER), size(ROWS)))
    b = ctypes.c_void_p(_call(base, "ggml_new_tensor_2d", context, _F32, size(INNER), size(COLUMNS)))
    product = ctypes.c_void_p(_call(base, "ggml_mul_mat", context, a, b))
    graph = ctypes.c_void_p(_call(base, "ggml_new_graph", context))
    _call(base, "ggml_build_forward_expand", graph, product, result=None)
    if not _call(base, "ggml_backend_alloc_ctx_tensors", context, on):
        sys.exit("the device gives no memory")
    numbers = random.Random(seed)
    for tensor, count in ((a, INNER * ROWS), (b, INNER * COLUMNS)):
        data = struct.pack(f"{count}f", *(numbers.uniform(-1, 1) for _ in range(count)))
        _call(
            base, "ggml_backend_tensor_set", tensor, data, ctypes.c_size_t(0), ctypes.c_size_t(len(data)), result=None
        )
    if _call(base, "ggml_backend_graph_compute", on, graph, result=ctypes.c_int):
        sys.exit("the device did not compute")
    into = ctypes.create_string_buffer(4 * ROWS * COLUMNS)
    _call(base, "ggml_backend_tensor_get", product, into, ctypes.c_size_t(0), ctypes.c_size_t(len(into)), result=None)
    return into.raw


def main() -> None:
    ggml = _libraries(Path(sys.argv[1]))
    on = backend(ggml, remote=sys.argv[2] == "remote")
    for seed in range(int(sys.argv[3]) if len(sys.argv) > 3 else 1):
        text = multiply(ggml, on, seed)
        first = ", ".join(f"{value:.4f}" for value in struct.unpack("4f", text[:16]))
        print(
            f"{seed}: {ROWS} x {INNER} by {INNER} x {COLUMNS}: {first} ... {hashlib.sha256(text).hexdigest()[:16]}",
            flush=True,
        )


if __name__ == "__main__":
    main()
