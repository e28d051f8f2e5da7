"""What the agent is told: the only reader of its environment."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from api import errors, lease, schema
from pool import identity, profiles

_PREFIX = "EGPU_"
_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_BUILT_IN = Path(__file__).with_name("profiles.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Each comes from the environment variable EGPU_<NAME>.

    pool_id: What this pool calls itself; the tokens of nodes must be made out to it. Default: the host's name.
    profiles: Kinds of servers that it offers, with commas between. No default: fake, ggml-rpc, lupine, cricket, or what
        profiles_file adds.
    profiles_file: YAML with profiles of your own; they win. Default none.
    cards_file: YAML with the cards, for a host without NVIDIA's driver. Default none: NVML is asked.
    nvml_library: libnvidia-ml.so.1. Default none: where the loader finds it.
    state_dir: Where leases, tokens and the pool's authority are kept; nothing else may write there. Default
        /var/lib/elastic-gpu-pool.
    authority_dir: Where ca.pem and ca.key are, if another place than state_dir; they are not made there. Default none.
    listen: host:port or :port of the one door, for the API and the servers. Default :7480. Port 0 takes a free one.
    advertise: The name or address under which controllers and nodes reach this host. Default: the host's name.
    names: Further names that the door's certificate is good for, with commas between. Default none.
    first_uid: Servers run as users from this number on, one a card. Default 64000.
    cgroup: A control group of version 2 that exists: each server gets a group of its own in it, under the limits that you
        gave this one. Default none.
    ttl_s: How long a lease lives without a renewal where its caller names no time. Elastic GPU's controller and node driver,
        who know how often they renew, name 600. Default 600.
    look_s: How often the cards are looked at. Default 10.
    longest_ttl_s: How long a caller may have it, 600 or more. Default 3600.
    review_url: The API server that knows the nodes' tokens. Default: the cluster of the agent's own pod, if it is one.
        Else nodes cannot call, and cards are attached but not reached.
    review_ca_file: Its authority. Default: that of the agent's own pod.
    review_token_file: The agent's own token there. Default: that of its own pod.
    node_account: namespace:name of the ServiceAccount of the driver of remote cards there. Default
        elastic-gpu:elastic-gpu-remote.
    cluster_uid: The UID of that cluster, which is that of its namespace kube-system. Default: it is asked.
    metrics_port: TCP port of /metrics, /healthz and /readyz. Default 8080. 0 switches it off.
    log_level: debug, info, warning or error. Default info.
    """

    pool_id: str
    profiles: tuple[str, ...]
    profiles_file: str = ""
    cards_file: str = ""
    nvml_library: str = ""
    state_dir: str = "/var/lib/elastic-gpu-pool"
    authority_dir: str = ""
    listen: str = ":7480"
    advertise: str
    names: tuple[str, ...] = ()
    first_uid: int = 64000
    cgroup: str = ""
    ttl_s: int = lease.TTL_MS // 1000
    look_s: int = 10
    longest_ttl_s: int = 3600
    review_url: str = ""
    review_ca_file: str = str(_POD / "ca.crt")
    review_token_file: str = str(_POD / "token")
    node_account: str = "elastic-gpu:elastic-gpu-remote"
    cluster_uid: str = ""
    metrics_port: int = 8080
    log_level: str = "info"

    @property
    def door(self) -> tuple[str, int]:
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def cluster(self) -> identity.Cluster | None:
        if not self.review_url:
            return None
        return identity.Cluster(
            url=self.review_url,
            ca_file=Path(self.review_ca_file),
            token_file=Path(self.review_token_file),
            account=self.node_account,
            uid=self.cluster_uid,
        )


def load() -> Settings:
    """The settings as the environment has them. Raises Invalid, naming the variable."""
    return read(os.environ, socket.gethostname())


def read(environment: Mapping[str, str], host: str) -> Settings:
    given: dict[str, Any] = {"pool_id": host, "advertise": host, "profiles": ()}
    inside = environment.get("KUBERNETES_SERVICE_HOST", "")
    if inside and (_POD / "token").exists():
        address = f"[{inside}]" if ":" in inside else inside
        given["review_url"] = f"https://{address}:{environment.get('KUBERNETES_SERVICE_PORT', '443')}"
    for field in fields(Settings):
        variable = _PREFIX + field.name.upper()
        if text := environment.get(variable, "").strip():
            given[field.name] = _value(
                variable, text, whole=field.type is int, many=field.name in {"profiles", "names"}
            )
    settings = Settings(**given)
    _check(settings)
    return settings


def _value(variable: str, text: str, *, whole: bool, many: bool) -> int | str | tuple[str, ...]:
    if whole and not text.isdecimal():
        raise errors.Invalid(f"{variable} is {text!r}; it must be a whole number")
    if many:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return int(text) if whole else text


def _check(settings: Settings) -> None:
    _, _, port = settings.listen.rpartition(":")
    if not port.isdecimal() or int(port) >= 2**16:
        raise errors.Invalid(f"EGPU_LISTEN is {settings.listen!r}; it must be host:port or :port")
    if not 1 <= settings.ttl_s <= settings.longest_ttl_s:
        raise errors.Invalid("EGPU_TTL_S must be from 1 to EGPU_LONGEST_TTL_S")
    if settings.longest_ttl_s * 1000 < lease.TTL_MS:
        raise errors.Invalid(
            f"EGPU_LONGEST_TTL_S must be {lease.TTL_MS // 1000} or more: Elastic GPU's clusters ask for that"
        )
    if settings.look_s < 1:
        raise errors.Invalid("EGPU_LOOK_S must be 1 or more")
    if settings.review_url and not settings.review_url.startswith("https://"):
        raise errors.Invalid(f"EGPU_REVIEW_URL is {settings.review_url!r}; tokens go over https:// only")


def offered(given: Settings) -> dict[str, profiles.Profile]:
    """The kinds of servers of this host. Blocks. Raises Invalid."""
    known: dict[str, profiles.Profile] = {}
    for file in (_BUILT_IN, *([Path(given.profiles_file)] if given.profiles_file else [])):
        try:
            known |= profiles.decode(yaml.safe_load(file.read_text()), str(file))
        except (OSError, yaml.YAMLError) as error:
            raise errors.Invalid(f"profiles of {file}: {error}") from error
    return profiles.chosen(known, given.profiles)


def manual() -> str:
    """What `--help` says of them."""
    _, texts = schema.documentation(Settings)
    return "\n".join(f"  {_PREFIX}{name.upper()}\n      {text}" for name, text in texts.items())
