"""The authority of an instance, its certificates, and the kubeconfigs made of them.

Kubeconfigs hold their certificates in themselves, so one file can be handed on.
"""

import base64
import json
from pathlib import Path

from hack.cluster import addresses, commands, state

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_NO_DEFAULTS = "[req]\ndistinguished_name = dn\n[dn]\n"

_CLIENTS = {
    "admin": "/O=system:masters/CN=admin",
    "kubelet-client": "/O=system:masters/CN=kube-apiserver-kubelet-client",
    "controller-manager": "/CN=system:kube-controller-manager",
    "scheduler": "/CN=system:kube-scheduler",
    "proxy": "/CN=system:kube-proxy",
}


def directory(instance: state.Instance) -> Path:
    return instance.directory / "pki"


def make(instance: state.Instance) -> None:
    """Make everything anew: authority, certificates, signing key of service accounts, kubeconfigs."""
    pki = directory(instance)
    pki.mkdir(mode=0o700)
    (pki / "openssl.cnf").write_text(_NO_DEFAULTS, encoding="utf-8")
    _openssl(pki, "req", "-x509", *_CURVE, "-keyout", "ca.key", "-out", "ca.crt", "-days", "3650", "-subj", "/CN=egpu-ca",
             "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature")  # fmt: skip
    _openssl(pki, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-out", "sa.key")
    _openssl(pki, "pkey", "-in", "sa.key", "-pubout", "-out", "sa.pub")
    place = instance.addresses
    served = f"IP:127.0.0.1,IP:{place.control_plane},IP:{addresses.API_SERVICE},DNS:kubernetes.default.svc"
    _certify(pki, "apiserver", "/CN=kube-apiserver", f"{served},DNS:kubernetes,DNS:kubernetes.default,DNS:localhost")
    for name, subject in _CLIENTS.items():
        _certify(pki, name, subject, f"DNS:{name}")
        _kubeconfig(instance, name)
    for node in instance.nodes:
        _certify(
            pki,
            node.name,
            f"/O=system:nodes/CN=system:node:{node.name}",
            f"DNS:{node.name},IP:{place.node(node.index)}",
        )
        _kubeconfig(instance, node.name)
    instance.kubeconfig.write_bytes((pki / "admin.kubeconfig").read_bytes())
    instance.kubeconfig.chmod(0o600)


def _certify(pki: Path, name: str, subject: str, names: str) -> None:
    _openssl(pki, "req", "-x509", *_CURVE, "-CA", "ca.crt", "-CAkey", "ca.key", "-keyout", f"{name}.key", "-out", f"{name}.crt",
             "-days", "3650", "-subj", subject, "-addext", f"subjectAltName={names}", "-addext", "basicConstraints=critical,CA:FALSE",
             "-addext", "keyUsage=critical,digitalSignature", "-addext", "extendedKeyUsage=serverAuth,clientAuth")  # fmt: skip


def _openssl(pki: Path, command: str, *arguments: str) -> None:
    config = ("-config", "openssl.cnf") if command == "req" else ()
    commands.run("openssl", command, *config, *arguments, cwd=pki)


def _kubeconfig(instance: state.Instance, name: str) -> None:
    pki = directory(instance)
    cluster = {"server": instance.addresses.api_url, "certificate-authority-data": _data(pki / "ca.crt")}
    user = {"client-certificate-data": _data(pki / f"{name}.crt"), "client-key-data": _data(pki / f"{name}.key")}
    context = f"egpu-{instance.name}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": name}}],
        "current-context": context,
    }
    (pki / f"{name}.kubeconfig").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode("ascii")
