"""What the webhook is told: the only reader of its environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields

from api import errors, quantity, schema

_PREFIX = "EGPU_"
_MIB = 2**20
_UNITS = {"GiB": 1024, "MiB": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Each comes from the environment variable EGPU_<NAME>.

    namespace: Where the Secret of the certificate lies. Default "default". The chart sets the release's namespace.
    service: Name of the Service by which the API server calls. Default elastic-gpu-webhook.
    secret: Name of the Secret that holds the certificate. Default elastic-gpu-webhook-tls.
    configuration: Name of the webhook configurations whose caBundle is kept. Default elastic-gpu-webhook.
    certificates: own: the certificate is made, renewed and trusted by this program. external: somebody else does all
        three, for example cert-manager; tls.crt and tls.key of the Secret are served. Default own.
    webhook_port: TCP port that the API server calls, with TLS. Default 9443. 0 takes any free port and logs which.
    port: TCP port of /healthz, /readyz and /metrics, on all addresses. Default 8080. 0 takes any free port.
    card_memory: Memory of a card, such as 80Gi, for old requests in parts of a card. Default none: they are refused.
    gpushare_unit: What one aliyun.com/gpu-mem is, GiB or MiB. Default GiB.
    log_level: debug, info, warning or error. Default info.
    """

    namespace: str = "default"
    service: str = "elastic-gpu-webhook"
    secret: str = "elastic-gpu-webhook-tls"  # noqa: S105  a name
    configuration: str = "elastic-gpu-webhook"
    certificates: str = "own"
    webhook_port: int = 9443
    port: int = 8080
    card_memory: str = ""
    gpushare_unit: str = "GiB"
    log_level: str = "info"

    @property
    def card_memory_mib(self) -> int:
        return int(quantity.parse(self.card_memory)) // _MIB if self.card_memory else 0

    @property
    def gpushare_mib(self) -> int:
        return _UNITS[self.gpushare_unit]


def load() -> Settings:
    """The settings as the environment has them. Raises Invalid, naming the variable."""
    return read(os.environ)


def read(environment: Mapping[str, str]) -> Settings:
    given = {
        name: text
        for name in (field.name for field in fields(Settings))
        if (text := environment.get(_PREFIX + name.upper()))
    }
    texts = {name: text for name, text in given.items() if not name.endswith("port")}
    found = Settings(**texts, **{name: _port(name, text) for name, text in given.items() if name not in texts})  # type: ignore[arg-type]
    if found.certificates not in ("own", "external"):
        raise errors.Invalid(f"EGPU_CERTIFICATES is {found.certificates!r}; known: own, external")
    if found.gpushare_unit not in _UNITS:
        raise errors.Invalid(f"EGPU_GPUSHARE_UNIT is {found.gpushare_unit!r}; known: {', '.join(_UNITS)}")
    try:
        _ = found.card_memory_mib
    except errors.Invalid as error:
        raise errors.Invalid(f"EGPU_CARD_MEMORY: {error}") from error
    return found


def manual() -> str:
    """What `--help` says of them."""
    _, texts = schema.documentation(Settings)
    return "\n".join(f"  {_PREFIX}{name.upper()}\n      {text}" for name, text in texts.items())


def _port(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**16:
        raise errors.Invalid(f"{_PREFIX}{name.upper()} is {text!r}; it must be a port number from 0 to 65535")
    return int(text)
