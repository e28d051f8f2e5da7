"""A claim's record -> its CDI spec: what containers get to find and reach their remote cards. No secret is in it.

    holding -> profile -> variables, and the directory with its credential, read-only

One CDI device a request: a container that names a request gets all cards of it, and no card of another one.
"""

from collections.abc import Iterator, Mapping

import msgspec

from api import names
from driver.remote import profiles, records, relays

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
        relayed = request in record.relayed
        ends = [
            f"127.0.0.1:{relays.port(record.uid, request, number)}" if relayed else f"{holding.host}:{holding.port}"
            for number, holding in enumerate(holdings)
        ]
        env = list(_variables(record.uid, request, holdings, chosen[request], ends, "" if relayed else inside))
        edits = {"env": env} | ({} if relayed else {"mounts": [mount]})
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


def relay(record: records.Record, request: str, holdings: tuple[records.Holding, ...]) -> relays.Relay:
    """What the relay of a request is told."""
    links = tuple(
        relays.Link(
            port=relays.port(record.uid, request, number),
            host=holding.host,
            front=holding.port,
            spki=holding.spki,
            credential=f"tls.pem.{number}" if number else "tls.pem",
        )
        for number, holding in enumerate(holdings)
    )
    return relays.Relay(pods=record.pods, links=links)


def _variables(
    uid: str,
    request: str,
    holdings: tuple[records.Holding, ...],
    profile: profiles.Profile,
    ends: list[str],
    inside: str,
) -> Iterator[str]:
    """The first ones are the claim's own, so that a second claim in the container replaces none of them."""
    own = f"{_ENV}_{uid.replace('-', '_')}_{request.replace('-', '_')}".upper()
    endpoints = ",".join(ends)
    yield f"{own}={endpoints}"
    yield f"{own}_LEASES={','.join(holding.lease_id for holding in holdings)}"
    yield f"{profile.endpoints}={endpoints}"
    if inside:
        yield f"{own}_KEYS={','.join(holding.spki for holding in holdings)}"
        yield f"{own}_CREDENTIALS={inside}"
    if inside and profile.credentials:
        yield f"{profile.credentials}={inside}"
    yield f"{names.VISIBLE_DEVICES_ENV}=void"
