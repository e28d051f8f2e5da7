"""What the controller is told: the only reader of its environment."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, fields

from api import errors, schema

_LISTEN = ("none", "local", "tls", "plain")
_PREFIX = "EGPU_"
_SECONDS = ("patience_s", "remote_binding_s", "remote_fresh_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Each comes from the environment variable EGPU_<NAME>.

    namespace: Where the Lease of the working replica lies. Default "default". The chart sets the release's namespace.
    pod_name: What people read in the Lease of this replica. Default: the host's name. The chart sets the pod's name.
    port: TCP port of /healthz, /readyz and /metrics, on all addresses. Default 8080. 0 takes any free port and logs
        which.
    translate: true: the templates are made that pods name which asked by old resource names. Default false.
    patience_s: Seconds after which a pod or claim that the controller could not allocate keeps a node from those behind
        it, so that small requests do not take for ever what a large one needs. Default 300.
    remote: true: cards of RemotePools are offered, attached and taken back. Default false.
    remote_credentials: Directory with <pool>.crt and <pool>.key, or tls.crt and tls.key for all other pools, by which
        pools know this controller. Read anew when they change.
    remote_nodes: Labels of the nodes on which the driver of remote cards runs, as key=value,key=value: no other node is
        offered a card. Empty: all nodes.
    remote_drivers: Labels of the pods of the driver of remote cards, in our namespace, as key=value,key=value: a card is
        attached for a node where one of them is ready. Empty: for every node.
    remote_binding_s: Seconds that kube-scheduler waits for a card (bindingTimeout of DynamicResourcesArgs). The controller
        gives up a minute before. Default 600.
    remote_fresh_s: Seconds after which a pool that has not answered gets no new pods: its cards are tainted. Default 60.
    page: Where the web page is served; it is shown to nobody whom the API server does not know. "none"; "local": on
        127.0.0.1 of the pod, for kubectl port-forward; "tls": on all addresses; "plain": the same without TLS, where
        an ingress or a mesh encrypts what runs between it and the pod. Default "local".
    page_port: Its TCP port. Default 8081. 0 takes any free port and logs which.
    page_tls: Directory of tls.crt and tls.key, as a Secret of type kubernetes.io/tls is mounted. Needed for "tls"; read
        again when the files change.
    log_level: debug, info, warning or error. Default info.
    """

    namespace: str = "default"
    pod_name: str = ""
    port: int = 8080
    translate: bool = False
    patience_s: int = 300
    remote: bool = False
    remote_credentials: str = "/etc/elastic-gpu/pool"
    remote_nodes: str = ""
    remote_drivers: str = ""
    remote_binding_s: int = 600
    remote_fresh_s: int = 60
    page: str = "local"
    page_port: int = 8081
    page_tls: str = ""
    log_level: str = "info"


def load() -> Settings:
    """The settings as the environment has them. Raises Invalid, naming the variable."""
    return read(os.environ)


def read(environment: Mapping[str, str]) -> Settings:
    given = {name: environment.get(_PREFIX + name.upper(), "") for name in (field.name for field in fields(Settings))}
    default = Settings()
    translate = given["translate"].lower()
    if translate not in {"", "true", "false"}:
        raise errors.Invalid(f"EGPU_TRANSLATE is {translate!r}; it is true or false")
    remote = given["remote"].lower()
    if remote not in {"", "true", "false"}:
        raise errors.Invalid(f"EGPU_REMOTE is {remote!r}; it is true or false")
    seconds = {name: given[name] or str(getattr(default, name)) for name in _SECONDS}
    for name, text in seconds.items():
        if not text.isdecimal() or int(text) <= 0:
            raise errors.Invalid(f"EGPU_{name.upper()} is {text!r}; it is a number of seconds above 0")
    for name in ("remote_nodes", "remote_drivers"):
        if wrong := [term for term in given[name].split(",") if term and term.find("=") < 1]:
            raise errors.Invalid(f"EGPU_{name.upper()} has {wrong[0]!r}; it is key=value,key=value")
    page = given["page"] or default.page
    if page not in _LISTEN:
        raise errors.Invalid(f"EGPU_PAGE is {page!r}; known: {', '.join(_LISTEN)}")
    if page == "tls" and not given["page_tls"]:
        raise errors.Invalid('EGPU_PAGE is "tls", and EGPU_PAGE_TLS names no directory with tls.crt and tls.key')
    return Settings(
        namespace=given["namespace"] or default.namespace,
        pod_name=given["pod_name"] or socket.gethostname(),
        port=_port("port", given, default.port),
        translate=translate == "true",
        patience_s=int(seconds["patience_s"]),
        remote=remote == "true",
        remote_credentials=given["remote_credentials"] or default.remote_credentials,
        remote_nodes=given["remote_nodes"],
        remote_drivers=given["remote_drivers"],
        remote_binding_s=int(seconds["remote_binding_s"]),
        remote_fresh_s=int(seconds["remote_fresh_s"]),
        page=page,
        page_port=_port("page_port", given, default.page_port),
        page_tls=given["page_tls"],
        log_level=given["log_level"] or default.log_level,
    )


def _port(name: str, given: Mapping[str, str], default: int) -> int:
    port = given[name] or str(default)
    if not port.isdecimal() or int(port) >= 2**16:
        raise errors.Invalid(f"{_PREFIX}{name.upper()} is {port!r}; it must be a port number from 0 to 65535")
    return int(port)


def manual() -> str:
    """What `--help` says of them."""
    _, texts = schema.documentation(Settings)
    return "\n".join(f"  {_PREFIX}{name.upper()}\n      {text}" for name, text in texts.items())
