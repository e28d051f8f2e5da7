"""Every CustomResourceDefinition of ours, from the types of its kind.

types (v1alpha1, elasticgpu, remote) --> crds --> charts/elastic-gpu/crds/*.yaml
"""

from dataclasses import dataclass
from typing import Any

from api import elasticgpu, names, remote, schema, v1alpha1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """What `kubectl get` prints. `wide`: with `-o wide` alone."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return found | ({"priority": 1} if self.wide else {})


_AGE = _Column(name="Age", type="date", path=".metadata.creationTimestamp")
_CLASS_COLUMNS = (
    _Column(name="Backend", path=".spec.backend"),
    _Column(name="Workloads", path=".spec.workloadTypes"),
    _Column(name="Cards", type="integer", path=".status.matchingCards"),
    _Column(name="Ready", path=f'.status.conditions[?(@.type=="{names.READY}")].status'),
    _AGE,
)
_CARD_COLUMNS = (
    _Column(name="Place", path=".status.place"),
    _Column(name="Model", path=".status.model"),
    _Column(name="State", path=".status.state"),
    _Column(name="Memory", path=".status.capacity.memory"),
    _Column(name="Free", path=".status.free.memory"),
    _Column(name="Held by", path=".status.heldBy"),
    _Column(name="Free cores", type="integer", path=".status.free.cores", wide=True),
    _Column(name="UUID", path=".status.uuid", wide=True),
    _Column(name="Reason", path=".status.reason", wide=True),
    _AGE,
)
_POOL_COLUMNS = (
    _Column(name="Endpoint", path=".spec.endpoint"),
    _Column(name="Cards", type="integer", path=".status.devices"),
    _Column(name="Leases", type="integer", path=".status.leases"),
    _Column(name="Reachable", path='.status.conditions[?(@.type=="Reachable")].status'),
    _AGE,
)
_LEASE_COLUMNS = (
    _Column(name="Pool", path=".spec.pool"),
    _Column(name="Device", path=".spec.device"),
    _Column(name="Namespace", path=".spec.claim.namespace"),
    _Column(name="Claim", path=".spec.claim.name"),
    _Column(name="Node", path=".spec.node.name"),
    _Column(name="Phase", path=".status.phase"),
    _Column(name="Lease", path=".status.leaseId", wide=True),
    _Column(name="Reason", path=".status.reason", wide=True),
    _AGE,
)


def crds() -> tuple[dict[str, Any], ...]:
    return (
        _crd(v1alpha1.ElasticGPUClass, plural=v1alpha1.CLASS_PLURAL, short="egc", columns=_CLASS_COLUMNS),
        # no status subresource: nobody but the controller writes one, and one write a card is half of two
        _crd(elasticgpu.ElasticGPU, plural=elasticgpu.PLURAL, short="egpu", columns=_CARD_COLUMNS, subresources=()),
        _crd(remote.RemotePool, plural=remote.POOL_PLURAL, short="rpool", columns=_POOL_COLUMNS),
        # intent and state are one write: a crash between two would leave an intent of no phase
        _crd(remote.RemoteLease, plural=remote.LEASE_PLURAL, short="rlease", columns=_LEASE_COLUMNS, subresources=()),
    )


def _crd(
    type_: type, *, plural: str, short: str, columns: tuple[_Column, ...], subresources: tuple[str, ...] = ("status",)
) -> dict[str, Any]:
    kind = type_.__name__
    openapi = schema.openapi(type_)
    openapi["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    } | openapi["properties"]
    version: dict[str, Any] = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [column.to_json() for column in columns],
        "schema": {"openAPIV3Schema": openapi},
    }
    if subresources:
        version["subresources"] = {name: {} for name in subresources}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
            },
            "scope": "Cluster",
            "versions": [version],
        },
    }
