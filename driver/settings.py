"""What an operator can set, and the only place that reads the environment.

Each field is the variable `EGPU_` + its name in capitals; the docstring under it is what `--help` shows. A variable that
is set and not understood stops the start with its name: a typo must not become a default.
"""

import ast
import dataclasses
import enum
import inspect
import os
import types
import typing
from dataclasses import dataclass
from pathlib import Path

from api import errors
from driver import hamiregion, offer

T = typing.TypeVar("T")

PREFIX = "EGPU_"
_TOO_LARGE = 1_000_000
_LAST_PORT = 65535
_SWITCHES = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    node_name: str
    """Name of this node in Kubernetes. Required; the chart takes it from the pod's spec.nodeName."""

    pod_uid: str = ""
    """UID of this pod. Set (the chart does): socket names carry it, and during a rolling update the old and the new pod
    serve side by side. Empty: one instance at a time."""

    registry_dir: Path = Path("/var/lib/kubelet/plugins_registry")
    """The kubelet's directory for registration sockets. Change it with the kubelet's root directory."""

    plugin_dir: Path = Path("/var/lib/kubelet/plugins")
    """The kubelet's directory for plugins; our sockets and records are in its sub-directory gpu.elasticgpu.io. The path
    must be the same here and on the host."""

    cdi_dir: Path = Path("/var/run/cdi")
    """Directory of CDI files, one of those that the host's container runtime reads (containerd: cdi_spec_dirs)."""

    driver_root: Path = Path("/driver-root")
    """Root of the NVIDIA driver's files as mounted here. / where this runs on the host itself."""

    host_driver_root: str = "/"
    """The same directory as the host names it: / for a driver installed on the host, /run/nvidia/driver for one in a
    container."""

    dev_root: Path | None = None
    """Directory that has dev/nvidia0, as seen here. Empty: the driver root if it has a dev directory, else /."""

    nvml_library: Path | None = None
    """The file libnvidia-ml.so.1 to load. Empty: searched under the driver root; where that is /, by the loader."""

    nvml_limit_s: float = 5.0
    """Seconds that one call to the driver may take before the card counts as hung. A busy card answers within 1 s."""

    nvidia_ctk: Path | None = None
    """NVIDIA's nvidia-ctk, which lists what containers need of the driver. Empty: searched under the driver root; where
    there is none, our own list serves."""

    cdi_hook: str = ""
    """Path of nvidia-cdi-hook on the host. Empty: searched under the driver root; where there is none, nvidia-ctk is not
    used, and links become mounts."""

    sysfs: Path = Path("/sys")
    """Where sysfs is mounted: NUMA nodes and PCI topology."""

    cgroups: Path = Path("/sys/fs/cgroup")
    """Where the control groups of version 2 are mounted, by the same path here and on the host: the card's driver is told
    them by that path."""

    proc: Path = Path("/proc")
    """Where the host's processes are seen; this program has to run in the host's pid namespace for it."""

    metrics_port: int = 9400
    """TCP port of /metrics, /healthz and /readyz. 0 switches the door off."""

    poll_s: float = 3.0
    """Seconds between two looks at the cards, the driver's version and the host's device nodes. Events of the driver come
    at once; this is for what it does not report."""

    repair_s: float = 1.0
    """Seconds between two looks at the CDI files. A missing or changed one is put back, since the kubelet makes no call
    for a claim that is prepared."""

    sweep_s: float = 60.0
    """Seconds between two looks whether the prepared claims still exist in the API server."""

    lost_evicts: bool = False
    """true: the taint of a lost card is NoExecute, and its pods are evicted. false: NoSchedule, they stay."""

    shares_per_card: int = 16
    """How many shares a card may have at once. 0: cards are offered as wholes only."""

    fill: offer.Fill = offer.Fill.BIN_PACK
    """BinPack: a new share goes to a card that has shares already. Spread: to the emptiest card. The order of the cards in
    the slice follows the claims that are prepared, so Spread lags behind pods that start at the same moment."""

    hami_library: Path | None = None
    """HAMi-core's libvgpu.so, at the same path here and on the node: with it shares are held by that library. Empty: not."""

    hami_sha256: str = ""
    """SHA-256 of that file. Another file is not given to any container. Empty: the file has to stay as it was at the start."""

    mps_dir: Path | None = None
    """Directory for the pipes, logs and shared memory of NVIDIA's MPS, at the same path here and on the node, on a tmpfs:
    with it this driver runs the node's one MPS control daemon, and shares are held by it. Empty: not."""

    mps_control: Path | None = None
    """NVIDIA's nvidia-cuda-mps-control. Empty: usr/bin under the driver root."""

    measure_s: float = 5.0
    """Seconds between two looks at what processes use of the cards, and whether limits are in force."""

    unbooked_mib: int = 512
    """MiB of a card's memory that may be used and not booked before the slice, and so everybody who looks, is told: by
    processes of no holder, or of one beyond its share. A program's context takes some hundred without a word."""

    unbooked_s: float = 150.0
    """Seconds that it has to last, or to be over. More than two of EGPU_SWEEP_S: a pod that came to a prepared claim is known
    by then."""

    unbooked_taint_mib: int = 0
    """MiB used and not booked from which on new pods are kept away from the card. 0: never."""

    hami_region: hamiregion.Layout | None = None
    """Version of the file that this library keeps a container's account in: 1.2 for HAMi-core as of mid 2026. With it the
    file is begun before the container starts, with its limits. Empty: the container's first process begins it, and one
    that has no environment does so without limits."""

    log_level: str = "info"
    """debug, info, warning or error."""


def load() -> Settings:
    """The settings of this process. Raises Invalid, which names every variable that is wrong."""
    return load_as(Settings)


def load_as(kind: type[T]) -> T:
    """The same for a program with other settings: any dataclass like the one above."""
    values, wrong = {}, []
    hints = typing.get_type_hints(kind)
    for item in dataclasses.fields(kind):  # type: ignore[arg-type]
        variable = PREFIX + item.name.upper()
        text = os.environ.get(variable, "")
        if text:
            try:
                values[item.name] = _parsed(text, hints[item.name])
            except ValueError as error:
                wrong.append(f"{variable}={text!r}: {error}")
        elif item.default is dataclasses.MISSING:
            wrong.append(f"{variable} is not set")
    if wrong:
        raise errors.Invalid("; ".join(wrong))
    return kind(**values)


def described(kind: type = Settings) -> str:
    """All variables with default and meaning, for people."""
    lines, texts = [], _docstrings(kind)
    for item in dataclasses.fields(kind):
        default = (
            "required"
            if item.default is dataclasses.MISSING
            else f"default {item.default if item.default not in (None, '') else 'empty'}"
        )
        lines.append(f"{PREFIX}{item.name.upper()} ({default})")
        lines += [f"    {line.strip()}" for line in texts[item.name].splitlines()]
    return "\n".join(lines)


def _parsed(text: str, kind: object) -> object:
    if isinstance(kind, types.UnionType):
        kind = next(part for part in typing.get_args(kind) if part is not types.NoneType)
    if kind is bool:
        if text.lower() not in _SWITCHES:
            raise ValueError("neither true nor false")
        return _SWITCHES[text.lower()]
    if kind is float or kind is int:
        number = float(text) if kind is float else int(text)
        if not (0 < number < _TOO_LARGE if kind is float else 0 <= number <= _LAST_PORT):
            raise ValueError("out of range")
        return number
    if isinstance(kind, enum.EnumType) and text not in list(kind):
        raise ValueError(f"none of {', '.join(kind)}")
    return kind(text) if isinstance(kind, type) else text


def _docstrings(kind: type) -> dict[str, str]:
    """The string under each field, as written above: Python itself keeps none."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            found[field.target.id] = str(ast.literal_eval(text.value))
    return found
