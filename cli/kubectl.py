"""kubectl, the only door to the cluster: `kubectl get --raw <path>`, and `create` and `delete` for what is asked to change.

It brings the user's kubeconfig, credentials, TLS and rights; none of these is ever touched here. All questions of a
batch run side by side, each into a file of its own, so that none waits for another to be read.
"""

import contextlib
import json
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from api import errors

_LARGE = 2**19
"""From here on a faster decoder is worth its import."""
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
        return self._run([["get", "--raw", path] for path in paths], decode=True)

    def texts(self, paths: Iterable[str]) -> list[Answer]:
        """As `ask`, for answers that are not JSON."""
        return self._run([["get", "--raw", path] for path in paths], decode=False)

    def create(self, *posted: tuple[str, Mapping[str, Any]]) -> list[Answer]:
        """Each (path, body), posted; its answer. Waits for all."""
        questions = [["create", "--raw", path, "-f", "-"] for path, _ in posted]
        return self._run(questions, decode=True, inputs=[json.dumps(body).encode() for _, body in posted])

    def delete(self, path: str) -> Answer:
        (answer,) = self._run([["delete", "--raw", path]], decode=True)
        return answer

    def namespace(self) -> str:
        """The namespace of the context in use."""
        (answer,) = self._run([["config", "view", "--minify", "-o", "jsonpath={..namespace}"]], decode=False)
        return str(answer.data or "").strip() or "default"

    def _run(self, questions: Sequence[Sequence[str]], *, decode: bool, inputs: Sequence[bytes] = ()) -> list[Answer]:
        with contextlib.ExitStack() as stack:
            running = []
            for number, question in enumerate(questions):
                out, err, given = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
                given.write(inputs[number] if inputs else b"")
                given.seek(0)
                process = self._started(question, out, err, given)
                stack.callback(_ended, process)
                running.append((process, out, err))
            return [_answer(process, out, err, decode=decode) for process, out, err in running]

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


def _answer(process: subprocess.Popen[bytes], out: IO[bytes], err: IO[bytes], *, decode: bool) -> Answer:
    code = process.wait()
    err.seek(0)
    words = _KLOG.sub("", err.read().decode(errors="replace")).strip()
    if code:
        found = _SERVER_SAID.match(words)
        return Answer(reason=found[1], words=words) if found else Answer(reason="Unreachable", words=words)
    out.seek(0)
    data = out.read()
    return Answer(data=_decoded(data) if decode else data.decode())


def _decoded(data: bytes) -> Any:
    if len(data) < _LARGE:
        return json.loads(data)
    import msgspec  # noqa: PLC0415  costs more than it saves on small answers

    return msgspec.json.decode(data)


def _ended(process: subprocess.Popen[bytes]) -> None:
    """Nothing of ours outlives an interrupted command."""
    if process.poll() is None:
        process.kill()
        process.wait()
