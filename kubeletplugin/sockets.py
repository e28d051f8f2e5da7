"""The plugin's unix sockets: their names, and servers that neither lose their path nor take another's.

A gRPC server removes the path that it was bound to, whoever serves there by then. So each is bound to a hidden name of
its own and then renamed to the name that others look for: the path appears when it answers, and it is removed by us,
only while it is still ours. (Kubelets skip hidden names in the registry directory.)
"""

import asyncio
import base64
import hashlib
import os
import re
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path

import grpc
import structlog

from api import errors
from kubeletplugin import contract

_LIMIT = 107
"""Bytes of a socket's path in the kernel, without the closing zero."""
_PATIENCE_S = 10
"""How long a predecessor that still stops may hold the path."""
_GRACE_S = 1
_LOOK_S = 0.5
_NOTICED_S = 0.02
"""A watching kubelet looks at each new name and logs an error where it is gone by then."""

log = structlog.get_logger()


def dra_socket(options: contract.Options) -> Path:
    """Where the kubelet calls us. The name is ours to choose: it is told at registration."""
    uid = options.pod_uid
    short = _digest(uid.encode(), 8)
    names = (f"dra-{uid}.sock", f"dra-{short}.sock", f"{short}.sock") if uid else ("dra.sock",)
    return _first_that_fits(options.data_dir, names)


def registration_socket(options: contract.Options) -> Path:
    """Where the kubelet finds us. The same names that Kubernetes' own Go library uses."""
    driver, uid = options.driver_name, options.pod_uid
    if not uid:
        return _first_that_fits(options.registry_dir, (f"{driver}-reg.sock",))
    both = _digest(f"{driver}\0{uid}".encode(), 16)
    names = f"{driver}-{uid}-reg.sock", f"{driver}-{_digest(uid.encode(), 8)}-reg.sock", f"dra-{both}-reg.sock"
    return _first_that_fits(options.registry_dir, names)


def _digest(text: bytes, size: int) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text).digest()[:size]).decode().rstrip("=")


def _first_that_fits(folder: Path, names: Sequence[str]) -> Path:
    for name in names:
        if len(os.fsencode(folder / name)) <= _LIMIT:
            return folder / name
    raise errors.Invalid(
        f"socket path {folder / names[-1]} has {len(os.fsencode(folder / names[-1]))} bytes, the kernel takes {_LIMIT}: "
        "use a shorter kubelet root directory or driver name"
    )


async def clear_leftovers(options: contract.Options) -> None:
    """Removes sockets of earlier instances that nobody serves: a kubelet would dial them for half an hour (KK#132660)."""
    registration = re.compile(re.escape(options.driver_name) + r"(-[0-9a-f-]{32,36}|-[\w-]{11})?-reg\.sock")
    for folder, name in ((options.registry_dir, registration), (options.data_dir, re.compile(r"(dra)?[\w-]*\.sock"))):
        for path in folder.glob("*.sock"):
            if name.fullmatch(path.name) and path.is_socket() and not _served(path):
                path.unlink(missing_ok=True)
                log.info("removed a socket that nobody serves", path=str(path))


class Listener:
    """One gRPC server at one path."""

    def __init__(self, path: Path, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        self.path = path
        self._handlers = handlers
        self._server: grpc.aio.Server | None = None
        self._ours: tuple[int, ...] | None = None

    async def open(self) -> None:
        """Serves at the path.

        Raises Conflict where another process goes on serving there, Unavailable where the directory cannot be used.
        """
        for _ in range(int(_PATIENCE_S / _LOOK_S)):
            if not _served(self.path):
                break
            await asyncio.sleep(_LOOK_S)
        else:
            raise errors.Conflict(
                f"another process serves {self.path}: stop it, or give each instance its pod's uid so that both can run"
            )
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(self._handlers)
        hidden = self.path.with_name("." + secrets.token_hex(3))
        try:
            self.path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            server.add_insecure_port(f"unix:{hidden}")
            await server.start()
            await asyncio.sleep(_NOTICED_S)
            hidden.rename(self.path)
        except (OSError, RuntimeError) as error:
            await server.stop(0)
            raise errors.Unavailable(f"cannot serve at {self.path}: {error}") from error
        self._server, self._ours = server, _identity(self.path)

    async def close(self) -> None:
        """Removes the path if it is ours, lets running calls end for a moment, stops."""
        if self._server is None:
            return
        server, self._server = self._server, None
        if self._ours == _identity(self.path):
            self.path.unlink(missing_ok=True)
        await server.stop(_GRACE_S)

    async def keep(self) -> None:
        """Serves again where the path was removed by others: a directory that was wiped, an eager clean-up."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._ours == _identity(self.path):
                continue
            if _served(self.path):
                self._ours = None
                raise errors.Conflict(f"another process has taken {self.path}")
            log.warning("socket was removed; serving it again", path=str(self.path))
            old = self._server
            await self.open()
            if old is not None:
                # gRPC's stop may by itself swallow that we are cancelled: wait_for before Python 3.12
                await asyncio.shield(old.stop(_GRACE_S))


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        seen = path.lstat()
    except OSError:
        return None
    return seen.st_dev, seen.st_ino, seen.st_mtime_ns  # inode numbers alone are used again at once


def _served(path: Path) -> bool:
    """Whether somebody listens. A unix connect does not wait."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # a full backlog, no permission: somebody is there, or we cannot tell
            return True
    return True
