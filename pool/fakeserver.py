"""A server for tests and demos, in the place of one that computes: it says who it is and gives back what it gets.

A line of JSON is a call: {"say": x} is answered with x and facts of the process, {"fork": n} starts children that live
on, {"die": code} ends it, {"multiply": [a, b]} multiplies two matrices. Anything else is given back as it came.
"""

import contextlib
import json
import os
import socketserver
import sys
import time
from typing import Any


def answer(call: dict[str, Any]) -> dict[str, Any]:
    if "die" in call:
        os._exit(int(call["die"]))
    children = []
    for _ in range(int(call.get("fork", 0))):
        child = os.fork()
        if child == 0:
            os.setsid()
            while True:
                time.sleep(3600)
        children.append(child)
    if "multiply" in call:
        a, b = call["multiply"]
        return {
            "product": [
                [sum(x * y for x, y in zip(row, col, strict=True)) for col in zip(*b, strict=True)] for row in a
            ]
        }
    return {
        "said": call.get("say"),
        "pid": os.getpid(),
        "uid": os.getuid(),
        "children": children,
        "card": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "variables": sorted(os.environ),
    }


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            reply = line
            with contextlib.suppress(ValueError, TypeError):
                call = json.loads(line)
                if isinstance(call, dict):
                    reply = json.dumps(answer(call)).encode() + b"\n"
            self.wfile.write(reply)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    with _Server(("127.0.0.1", int(sys.argv[1])), _Connection) as server:
        server.serve_forever()
