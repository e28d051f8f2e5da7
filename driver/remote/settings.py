"""What an operator can set of the driver of remote cards: the variables EGPU_*, as `driver.settings` reads them."""

from dataclasses import dataclass
from pathlib import Path

from driver import settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    node_name: str
    """Name of this node in Kubernetes. Required; the chart takes it from the pod's spec.nodeName."""

    namespace: str
    """Namespace of this pod. Required, like the next two: tokens for pools are bound to the pod."""

    pod_name: str
    """Name of this pod."""

    pod_uid: str
    """UID of this pod. Socket names carry it, so that during a rolling update the old and the new pod serve side by side."""

    service_account: str
    """Name of this pod's ServiceAccount, for which tokens are asked."""

    registry_dir: Path = Path("/var/lib/kubelet/plugins_registry")
    """The kubelet's directory for registration sockets. Change it with the kubelet's root directory."""

    plugin_dir: Path = Path("/var/lib/kubelet/plugins")
    """The kubelet's directory for plugins; our sockets and records are in its sub-directory remote.gpu.elasticgpu.io. The
    path must be the same here and on the host."""

    cdi_dir: Path = Path("/var/run/cdi")
    """Directory of CDI files, one of those that the host's container runtime reads."""

    credentials_dir: Path = Path("/run/elastic-gpu/remote")
    """Where keys and certificates of leases are kept: in memory (tmpfs), at the same path here and on the host."""

    relay: bool = False
    """true: egpu-relay runs on this node, so that clients may have cards that show no certificate themselves."""

    metrics_port: int = 9401
    """TCP port of /metrics, /healthz and /readyz. 0 switches the door off."""

    sweep_s: float = 60.0
    """Seconds between two looks whether the prepared claims still exist in the API server."""

    log_level: str = "info"
    """debug, info, warning or error."""


def load() -> Settings:
    """The settings of this process. Raises Invalid, which names every variable that is wrong."""
    return settings.load_as(Settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    credentials_dir: Path = Path("/run/elastic-gpu/remote")
    """The same as the driver's."""

    log_level: str = "info"
    """debug, info, warning or error."""


def load_relay() -> RelaySettings:
    """The settings of a relay's process."""
    return settings.load_as(RelaySettings)
