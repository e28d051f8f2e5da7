"""Waiting for an instance by asking its API server, and saying why when it does not come.

Asked with the administrator's certificate over a plain HTTPS connection; no client of Kubernetes is needed.
"""

import http.client
import json
import ssl
import time
from collections.abc import Callable

from hack.cluster import certificates, controlplane, errors, nodes, processes, progress, state

_PAUSE_S = 0.1
_TELL_S = 10.0


def wait_for_api(instance: state.Instance, timeout_s: float = 180) -> None:
    _wait(instance, "the API server", lambda: _api_lacks(instance), timeout_s)


def wait_for_nodes(instance: state.Instance, timeout_s: float = 240) -> None:
    """Return when every node is Ready and pods can be made in the default namespace."""
    _wait(instance, "the nodes", lambda: _nodes_lack(instance), timeout_s)


def wait_for_containerd(instance: state.Instance, node: state.Node, timeout_s: float = 120) -> None:
    socket = nodes.host_path(instance, node, "/run/containerd/containerd.sock")
    _wait(instance, f"containerd on {node.name}", lambda: "" if socket.exists() else "no socket yet", timeout_s)


def explain(instance: state.Instance) -> str:
    """What the logs say: of every program that ended, else of all that may be the cause."""
    names = [name for name in processes.known(instance.directory) if not name.endswith(".new")]
    dead = [name for name in names if processes.running(instance.directory, name) is None]
    likely = dead or [controlplane.APISERVER, *(nodes.program_name(node, nodes.KUBELET) for node in instance.nodes)]
    logs = instance.directory / "logs"
    return "\n".join(
        f"--- {name}{' (ended)' if name in dead else ''}:\n{processes.tail(logs / f'{name}.log')}" for name in likely
    )


def _wait(instance: state.Instance, what: str, lacks: Callable[[], str], timeout_s: float) -> None:
    began = told = time.monotonic()
    while missing := lacks():
        now = time.monotonic()
        dead = [
            name for name in processes.known(instance.directory) if processes.running(instance.directory, name) is None
        ]
        if dead or now - began > timeout_s:
            reason = f"{', '.join(dead)} ended" if dead else f"not within {timeout_s:.0f} s: {missing}"
            raise errors.ClusterError(f"{what} of {instance.name} did not come up; {reason}\n{explain(instance)}")
        if now - told > _TELL_S:
            told = now
            progress.say(f"waiting for {what}: {missing}")
        time.sleep(_PAUSE_S)


def _api_lacks(instance: state.Instance) -> str:
    try:
        status, body = _get(instance, "/readyz")
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    return "" if status == http.HTTPStatus.OK else body.decode(errors="replace")[:200]


def _nodes_lack(instance: state.Instance) -> str:
    try:
        status, body = _get(instance, "/api/v1/nodes")
        account, _ = _get(instance, "/api/v1/namespaces/default/serviceaccounts/default")
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    if status != http.HTTPStatus.OK:
        return body.decode(errors="replace")[:200]
    seen = {node["metadata"]["name"]: _not_ready(node) for node in json.loads(body)["items"]}
    lacking = {node.name: seen.get(node.name, "not registered") for node in instance.nodes}
    told = [f"{name} {reason}" for name, reason in lacking.items() if reason]
    if account != http.HTTPStatus.OK:
        told.append("no service account in the default namespace")
    return "; ".join(told)


def _not_ready(node: dict[str, dict[str, list[dict[str, str]]]]) -> str:
    for condition in node["status"].get("conditions", []):
        if condition["type"] == "Ready":
            return "" if condition["status"] == "True" else condition.get("message", "not ready")
    return "has no status"


def _get(instance: state.Instance, path: str) -> tuple[int, bytes]:
    pki = certificates.directory(instance)
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    connection = http.client.HTTPSConnection(instance.addresses.control_plane, 6443, timeout=20, context=context)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
