"""A claim's record -> its CDI spec: what containers get to find and reach their remote cards. No secret is in it.

    holding -> profile -> variables, and the directory with its credential, read-only

One CDI device a request: a container that names a request gets all cards of it, and no card of another one.
"""

from collections.abc import Iterator, Mapping

import msgspec

from api import names
from driver.remote import profiles, records

KIND = f"{names.REMOTE_CDI_VENDOR}/{names.CDI_CLASS}"
_ENV = "ELASTIC_GPU_REMOTE"


def requests(record: records.Record) -> dict[str, tuple[records.Holding, ...]]:
    """The cards by the request that a container names, in the claim's order."""
    found: dict[str, list[records.Holding]] = {}
    for holding in record.holdings:
        found.setdefault(holding.request.partition("/")[0], []).append(holding)
    return {request: tuple(holdings) for request, holdings in found.items()}


def qualified(uid: str, request: str) -> str:
    """What a container runtime is told."""
    return f"{KIND}={uid}-{request}"


def of_claim(record: records.Record, chosen: Mapping[str, profiles.Profile], credentials: str) -> str:
    """The text of a claim's spec file. `credentials`: the claim's directory on the host, one below it a request."""
    devices = []
    for request, holdings in requests(record).items():
        inside = f"{profiles.DIRECTORY}/{record.uid}-{request}"
        mount = {
            "hostPath": f"{credentials}/{request}",
            "containerPath": inside,
            "options": ["ro", "nosuid", "nodev", "noexec", "bind"],
        }
        env = list(_variables(record.uid, request, holdings, chosen[request], inside))
        edits = {"env": env, "mounts": [mount]}
        devices.append({"name": f"{record.uid}-{request}", "containerEdits": edits})
    spec = {"cdiVersion": "0.5.0", "kind": KIND, "devices": devices}
    return msgspec.json.encode(spec).decode()


def data(holding: records.Holding) -> dict[str, str]:
    """What the claim's status tells of a card that we attached ourselves."""
    return {
        "clientProfile": holding.profile,
        "endpoint": f"{holding.host}:{holding.port}",
        "leaseID": holding.lease_id,
        "protocol": holding.protocol,
        "serverFingerprint": holding.spki,
    }


def _variables(
    uid: str, request: str, holdings: tuple[records.Holding, ...], profile: profiles.Profile, inside: str
) -> Iterator[str]:
    """The first ones are the claim's own, so that a second claim in the container replaces none of them."""
    own = f"{_ENV}_{uid.replace('-', '_')}_{request.replace('-', '_')}".upper()
    endpoints = ",".join(f"{holding.host}:{holding.port}" for holding in holdings)
    yield f"{own}={endpoints}"
    yield f"{own}_LEASES={','.join(holding.lease_id for holding in holdings)}"
    yield f"{own}_KEYS={','.join(holding.spki for holding in holdings)}"
    yield f"{own}_CREDENTIALS={inside}"
    yield f"{profile.endpoints}={endpoints}"
    if profile.credentials:
        yield f"{profile.credentials}={inside}"
    yield f"{names.VISIBLE_DEVICES_ENV}=void"
