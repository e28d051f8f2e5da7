"""kubectl, the only door to the cluster: `kubectl get --raw <path>`, and `create` and `delete` for what is asked to change.

It brings the user's kubeconfig, credentials, TLS and rights; none of these is ever touched here. All questions of a
batch run side by side, each into a file of its own, so that none waits for another to be read.
"""

import contextlib
import itertools
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import msgspec

from api import errors

Decode = Callable[[bytes], Any]
_SERVER_SAID = re.compile(r"Error from server \((\w+)\): ?(.*)", re.DOTALL)
_KLOG = re.compile(r"^[EIWF]\d{4} [^\]]*\] ?.*\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`reason` is empty where `data` is what was asked for; else the server's word for it, or Unreachable."""

    data: Any = None
    reason: str = ""
    words: str = ""


class Kubectl:
    """`flags` of the user's, such as --context, go along with every question."""

    def __init__(self, flags: Sequence[str] = (), program: str = "kubectl") -> None:
        self._program = program
        self._flags = tuple(flags)

    def ask(self, paths: Iterable[str]) -> list[Answer]:
        """One answer a path, in their order. Waits for all."""
        return self.read((path, msgspec.json.decode) for path in paths)

    def texts(self, paths: Iterable[str]) -> list[Answer]:
        """As `ask`, for answers that are not JSON."""
        return self.read((path, bytes.decode) for path in paths)

    def read(self, wanted: Iterable[tuple[str, Decode]]) -> list[Answer]:
        """As `ask`, each answer decoded by what goes with its path, while the later ones still come."""
        return self._run([(["get", "--raw", path], decode, b"") for path, decode in wanted])

    def create(self, *posted: tuple[str, Mapping[str, Any]]) -> list[Answer]:
        """Each (path, body), posted; its answer. Waits for all."""
        return self._run(
            [
                (["create", "--raw", path, "-f", "-"], msgspec.json.decode, msgspec.json.encode(body))
                for path, body in posted
            ]
        )

    def delete(self, path: str) -> Answer:
        (answer,) = self._run([(["delete", "--raw", path], msgspec.json.decode, b"")])
        return answer

    def namespace(self) -> str:
        """The namespace of the context in use."""
        question = ["config", "view", "--minify", "-o", "jsonpath={..namespace}"]
        (answer,) = self._run([(question, bytes.decode, b"")])
        return str(answer.data or "").strip() or "default"

    def _run(self, questions: Iterable[tuple[Sequence[str], Decode, bytes]]) -> list[Answer]:
        """Each with what it is given to read."""
        with contextlib.ExitStack() as stack:
            running = []
            for question, decode, text in questions:
                out, err, given = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
                given.write(text)
                given.seek(0)
                process = self._started(question, out, err, given)
                stack.callback(_ended, process)
                running.append((process, out, err, decode))
            return list(itertools.starmap(_answer, running))

    def _started(
        self, question: Sequence[str], out: IO[bytes], err: IO[bytes], given: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        command = [self._program, *question, *self._flags]
        try:
            return subprocess.Popen(command, stdin=given, stdout=out, stderr=err)  # noqa: S603
        except OSError as error:
            raise errors.Unavailable(
                f"{self._program} cannot be run ({error.strerror}); it has to be in PATH"
            ) from error


def _answer(process: subprocess.Popen[bytes], out: IO[bytes], err: IO[bytes], decode: Decode) -> Answer:
    code = process.wait()
    err.seek(0)
    words = _KLOG.sub("", err.read().decode(errors="replace")).strip()
    if code:
        found = _SERVER_SAID.match(words)
        return Answer(reason=found[1], words=words) if found else Answer(reason="Unreachable", words=words)
    out.seek(0)
    return Answer(data=decode(out.read()))


def _ended(process: subprocess.Popen[bytes]) -> None:
    """Nothing of ours outlives an interrupted command."""
    if process.poll() is None:
        process.kill()
        process.wait()
