"""A node: containerd, kube-proxy and kubelet in one network and one mount namespace.

Inside, /run, /var/lib and /var/log are the node's own, from its directory `run`, `lib` and `log`; so every path is
the default one, socket paths are short, and nothing of it shows on the machine. A process that only sleeps keeps both
namespaces, so the node's programs can be stopped and started without losing mounts.
"""

import json
from pathlib import Path

from hack.cluster import certificates, cgroups, commands, errors, processes, state

CONTAINERD, PROXY, KUBELET = "containerd", "kube-proxy", "kubelet"
PROGRAMS = (CONTAINERD, PROXY, KUBELET)

_PRIVATE = {"/var/run": "run", "/run": "run", "/var/lib": "lib", "/var/log": "log"}

_MOUNTS = """
set -e
mount --bind "$1/run" /run
mount --bind "$1/lib" /var/lib
mount --bind "$1/log" /var/log
mount --make-rshared /
shift
exec "$@"
"""

_CONTAINERD = """\
version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "registry.local/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = true
  cdi_spec_dirs = ["/var/run/cdi"]
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{plugins}"]
  conf_dir = "{directory}/cni"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  SystemdCgroup = false
"""


def group(instance: state.Instance, node: state.Node) -> str:
    return f"egpu-{instance.name}-{node.name.replace('node', 'n')}"


def host_path(instance: state.Instance, node: state.Node, path: str) -> Path:
    """Where the machine sees a file that lies in one of the node's own directories."""
    return seen_from_outside(instance.node_directory(node), path)


def seen_from_outside(directory: Path, path: str) -> Path:
    for inside, outside in _PRIVATE.items():
        if path == inside or path.startswith(f"{inside}/"):
            return directory / outside / path.removeprefix(inside).lstrip("/")
    raise errors.ClusterError(f"{path}: a node's own files are those below /run, /var/run, /var/lib and /var/log")


def prepare(instance: state.Instance, node: state.Node) -> None:
    """Lay out the node's directory and its programs' settings."""
    directory = instance.node_directory(node)
    for name in (
        "run/containerd",
        "run/cdi",
        "run/netns",
        "lib/kubelet",
        "lib/containerd",
        "lib/cni",
        "log/pods",
        "log/containers",
        "cni",
    ):
        (directory / name).mkdir(parents=True)
    (directory / "resolv.conf").write_text("# no name service here\n", encoding="utf-8")
    (directory / "containerd.toml").write_text(
        _CONTAINERD.format(directory=directory, plugins=cni_plugins()), encoding="utf-8"
    )
    _store(directory / "cni/10-egpu.conflist", _pod_network(instance, node))
    _store(directory / "kubelet.yaml", _kubelet(instance, node))
    _store(directory / "kube-proxy.yaml", _kube_proxy(instance, node))


def start_keeper(instance: state.Instance, node: state.Node) -> int:
    """Start the process whose namespaces are the node's; the caller wires it."""
    return start_apart(instance, node.name, cgroups.make(group(instance, node)))


def start_apart(instance: state.Instance, name: str, leaf: Path) -> int:
    """Start a process whose namespaces are those of a host of this name, with its own files below its directory."""
    mounts = ("sh", "-c", _MOUNTS, "sh", str(instance.directory / name))
    return processes.start(
        processes.Program(
            directory=instance.directory,
            name=name,
            argv=("sleep", "infinity"),
            group=leaf,
            wrapper=("unshare", "--net", "--mount", "--propagation", "private", "--", *mounts),
        )
    )


def start(instance: state.Instance, node: state.Node, program: str) -> None:
    """Start one of the node's programs; one that runs already is left alone."""
    directory, binaries = instance.node_directory(node), instance.bin
    words = {
        CONTAINERD: (f"{binaries}/containerd", f"--config={directory}/containerd.toml"),
        PROXY: (f"{binaries}/kube-proxy", f"--config={directory}/kube-proxy.yaml"),
        KUBELET: (
            f"{binaries}/kubelet",
            f"--config={directory}/kubelet.yaml",
            f"--kubeconfig={certificates.directory(instance)}/{node.name}.kubeconfig",
            f"--hostname-override={node.name}",
            f"--node-ip={instance.addresses.node(node.index)}",
        ),
    }
    processes.start(
        processes.Program(
            directory=instance.directory,
            name=program_name(node, program),
            argv=words[program],
            group=cgroups.leaf(group(instance, node)),
            wrapper=entering(instance, node),
            path=binaries,
        )
    )


def program_name(node: state.Node, program: str) -> str:
    return f"{node.name}.{program}"


def keeper(instance: state.Instance, node: state.Node) -> int:
    pid = processes.running(instance.directory, node.name)
    if pid is None:
        raise errors.ClusterError(f"{node.name} of {instance.name} is not up: python3 -m hack.cluster status")
    return pid


def entering(instance: state.Instance, node: state.Node) -> tuple[str, ...]:
    """The words before a command that is to run on the node."""
    return processes.entering(keeper(instance, node), mounts=True)


def import_image(instance: state.Instance, node: state.Node, archive: Path) -> None:
    """Give a node an archive of images; it is read here, so it may lie anywhere."""
    ctr = (str(instance.bin / "ctr"), "--namespace=k8s.io", "images", "import", "-")
    with archive.open("rb") as stream:
        commands.feed(*entering(instance, node), *ctr, stream=stream)


def cni_plugins() -> str:
    """The directory of the pod network plugins: a distribution's, or the one that upstream's archives unpack to."""
    found = [path for path in ("/usr/lib/cni", "/usr/libexec/cni", "/opt/cni/bin") if Path(path, "ptp").exists()]
    return found[0] if found else "/usr/lib/cni"


def _pod_network(instance: state.Instance, node: state.Node) -> dict[str, object]:
    # Point to point rather than a bridge: all traffic between pods is routed, so connection tracking sees the answers
    # to service addresses also when both pods are on this node.
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": str(instance.addresses.node_pods(node.index))}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "1.0.0",
        "name": "egpu",
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": addresses}, {"type": "loopback"}],
    }


def _kubelet(instance: state.Instance, node: state.Node) -> dict[str, object]:
    pki = certificates.directory(instance)
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": instance.addresses.node(node.index),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{pki}/{node.name}.crt",
        "tlsPrivateKeyFile": f"{pki}/{node.name}.key",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{group(instance, node)}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "evictionHard": {},
        "maxPods": 160,  # a burst of the usual 110 has room beside the pods of the system
        "resolvConf": f"{instance.node_directory(node)}/resolv.conf",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "featureGates": {
            name: value == "true"
            for name, _, value in (gate.partition("=") for gate in instance.feature_gates.split(",") if gate)
        },
    }


def _kube_proxy(instance: state.Instance, node: state.Node) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "bindAddress": instance.addresses.node(node.index),
        "clusterCIDR": str(instance.addresses.pods),
        "hostnameOverride": node.name,
        "clientConnection": {"kubeconfig": f"{certificates.directory(instance)}/proxy.kubeconfig"},
        "conntrack": {"maxPerCore": 0},
    }


def _store(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
