"""etcd, API server, controller manager and scheduler of an instance, in a network namespace of their own.

etcd listens on that namespace's loopback and does not wait for the disk: what it holds lives as long as the instance.
The API server asks for the endpoints of a webhook's service itself, so no kube-proxy is needed here.
"""

from pathlib import Path

from hack.cluster import addresses, certificates, cgroups, errors, processes, state

KEEPER = "control-plane"
APISERVER = "apiserver"
SCHEDULER = "scheduler"
FIRST = ("etcd", APISERVER)
THEN = ("controller-manager", SCHEDULER)
"""These end at once where no API server answers."""

_ETCD = "http://127.0.0.1:2379"


def group(instance: state.Instance) -> str:
    return f"egpu-{instance.name}-cp"


def start_keeper(instance: state.Instance) -> int:
    """Start the process whose network namespace is the control plane's; the caller wires it."""
    leaf = cgroups.make(group(instance))
    return processes.start(
        processes.Program(
            directory=instance.directory,
            name=KEEPER,
            argv=("sleep", "infinity"),
            group=leaf,
            wrapper=("unshare", "--net", "--"),
        )
    )


def keeper(instance: state.Instance) -> int:
    pid = processes.running(instance.directory, KEEPER)
    if pid is None:
        raise errors.ClusterError(f"the control plane of {instance.name} is not up: python3 -m hack.cluster status")
    return pid


def start(instance: state.Instance, program: str) -> None:
    words = {"etcd": _etcd, APISERVER: _apiserver, "controller-manager": _controller_manager, SCHEDULER: _scheduler}
    argv = words[program](instance, certificates.directory(instance))
    processes.start(
        processes.Program(
            directory=instance.directory,
            name=program,
            argv=argv,
            group=cgroups.leaf(group(instance)),
            wrapper=processes.entering(keeper(instance), mounts=False),
        )
    )


def _etcd(instance: state.Instance, _pki: Path) -> tuple[str, ...]:
    return (
        f"{instance.bin}/etcd",
        f"--data-dir={instance.directory}/etcd",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",
    )


def _apiserver(instance: state.Instance, pki: Path) -> tuple[str, ...]:
    address = instance.addresses.control_plane
    return (
        f"{instance.bin}/kube-apiserver",
        f"--etcd-servers={_ETCD}",
        f"--bind-address={address}",
        f"--advertise-address={address}",
        "--secure-port=6443",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki}/sa.pub",
        f"--service-account-signing-key-file={pki}/sa.key",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-cluster-ip-range={addresses.SERVICES}",
        f"--runtime-config={','.join(_kinds(instance))}",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={pki}/kubelet-client.crt",
        f"--kubelet-client-key={pki}/kubelet-client.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        "--enable-aggregator-routing=true",
        *_gates(instance),
    )


def _controller_manager(instance: state.Instance, pki: Path) -> tuple[str, ...]:
    return (
        f"{instance.bin}/kube-controller-manager",
        f"--kubeconfig={pki}/controller-manager.kubeconfig",
        f"--service-account-private-key-file={pki}/sa.key",
        f"--root-ca-file={pki}/ca.crt",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        *_gates(instance),
    )


def _scheduler(instance: state.Instance, pki: Path) -> tuple[str, ...]:
    return (
        f"{instance.bin}/kube-scheduler",
        f"--kubeconfig={pki}/scheduler.kubeconfig",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        *_gates(instance),
    )


def _kinds(instance: state.Instance) -> tuple[str, ...]:
    """Versions that are off by themselves: for tests with older clients, and PodGroups, of which older servers know nothing."""
    groups = "GenericWorkload=true" in instance.feature_gates.split(",")
    older = ("resource.k8s.io/v1beta1=true", "resource.k8s.io/v1beta2=true")
    return (*older, "scheduling.k8s.io/v1beta1=true") if groups else older


def _gates(instance: state.Instance) -> tuple[str, ...]:
    return (f"--feature-gates={instance.feature_gates}",) if instance.feature_gates else ()
