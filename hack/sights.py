"""What the demo shows of a cluster, in lines: claims and their cards, what node drivers publish, CDI files on a node."""

import json
from collections.abc import Iterable
from typing import Any

from hack import release
from hack.cluster import errors
from hack.kubectl import Kubectl

Object = dict[str, Any]


def shared_card(claims: Iterable[Object]) -> str:
    """The one card that these claims share, as pool/device. Raises ClusterError where it is not one."""
    found = {claim["metadata"]["name"]: {(one["pool"], one["device"]) for one in results(claim)} for claim in claims}
    places: set[tuple[str, str]] = set().union(*found.values())
    if len(found) < 2 or len(places) != 1 or not all(found.values()):
        raise errors.ClusterError(f"{' and '.join(found)} do not stand on one card: {found}")
    return "/".join(places.pop())


def claim_lines(claim: Object) -> list[str]:
    holders = ", ".join(f"{user['resource'][:-1]} {user['name']}" for user in claim["status"].get("reservedFor", []))
    lines = [f"{claim['metadata']['name']}, held by {holders}"]
    lines += [f"  request {one['request']} -> pool {one['pool']}, device {one['device']}" for one in results(claim)]
    return lines + [
        f"  prepared: {json.dumps(device.get('data', {}))}" for device in claim["status"].get("devices", [])
    ]


def results(claim: Object) -> list[Object]:
    results: list[Object] = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return results


def slice_lines(found: Object, held: dict[tuple[str, str], list[str]]) -> list[str]:
    spec = found["spec"]
    devices = spec.get("devices") or []
    lines = [
        f"pool {spec['pool']['name']}: {len(devices)} cards" if devices else f"pool {spec['pool']['name']}: no card"
    ]
    for device in devices:
        values = {name: next(iter(value.values())) for name, value in device.get("attributes", {}).items()}
        holders = held.get((spec["pool"]["name"], device["name"]), [])
        facts = (
            device["name"],
            values.get("productName", ""),
            device.get("capacity", {}).get("memory", {}).get("value", ""),
        )
        lines.append(f"  {'  '.join(facts)}  {'<- ' + ', '.join(holders) if holders else 'free'}")
    return lines


def cdi_lines(kubectl: Kubectl, claim: Object) -> list[str]:
    """The claim's file as the driver on that node has it, in short."""
    node = results(claim)[0]["pool"].removeprefix("egpu/")
    selector = "app.kubernetes.io/name=elastic-gpu,app.kubernetes.io/component=node"
    pod = kubectl.objects("pods", "-n", release.NAMESPACE, "-l", selector, f"--field-selector=spec.nodeName={node}")[0]
    inside = ("-n", release.NAMESPACE, "exec", pod["metadata"]["name"], "--")
    path = kubectl(*inside, "sh", "-c", f"ls /var/run/cdi/*{claim['metadata']['uid']}*").split()[0]
    spec = json.loads(kubectl(*inside, "cat", path))
    lines = [f"{node}:{path}"]
    for name, edits in (
        ("every container", spec.get("containerEdits", {})),
        *((d["name"], d["containerEdits"]) for d in spec["devices"]),
    ):
        nodes = [entry["path"] for entry in edits.get("deviceNodes", [])]
        parts = (
            *edits.get("env", []),
            *nodes,
            f"{len(edits.get('mounts', []))} mounts",
            f"{len(edits.get('hooks', []))} hooks",
        )
        lines.append(f"  {name}: {', '.join(parts)}")
    return lines
