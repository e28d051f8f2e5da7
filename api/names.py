"""Every name that someone outside can see: group, drivers, attributes, capacities, taints, labels, conditions.

One place, so that the chart, the classes, the page and the tests cannot disagree. Attribute names follow
NVIDIA's driver where it has one, so that CEL texts carry over.
"""

GROUP = "elasticgpu.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

LOCAL_DRIVER = "gpu.elasticgpu.io"
REMOTE_DRIVER = f"remote.{LOCAL_DRIVER}"
"""Its devices carry their attributes under the local driver's domain, so that one CEL text fits both."""
POOL_PREFIX = "egpu/"
"""Local pools are `egpu/<node>`: an upstream bug mixes the counters of equal pool names (KK#140434)."""

# Attributes without a domain belong to the driver's own domain.
TYPE = "type"
UUID = "uuid"
PRODUCT_NAME = "productName"
BRAND = "brand"
ARCHITECTURE = "architecture"
COMPUTE_CAPABILITY = "cudaComputeCapability"
DRIVER_VERSION = "driverVersion"
CUDA_DRIVER_VERSION = "cudaDriverVersion"
BACKEND = "backend"
MEMORY_ENFORCEMENT = "memoryEnforcement"
CORES_ENFORCEMENT = "coresEnforcement"
ALLOCATED_BY = "allocatedBy"
BY_SCHEDULER, BY_CONTROLLER = "scheduler", "controller"
PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"

CORES = "cores"
MEMORY = "memory"
SHARES = "shares"

XID_TAINT = f"{LOCAL_DRIVER}/xid"
LOST_TAINT = f"{LOCAL_DRIVER}/lost"
UNREADABLE_TAINT = f"{LOCAL_DRIVER}/unreadable"
ALLOCATED_BY_TAINT = f"{LOCAL_DRIVER}/allocated-by"
"""Keeps kube-scheduler away from cards that the controller allocates. It says nothing about the card's health."""
MIG_TAINT = f"{LOCAL_DRIVER}/mig"
RETAINED_TAINT = f"{LOCAL_DRIVER}/retained"
"""By a DeviceTaintRule: the card was released by a claim whose class says Retain, and nobody has freed it yet."""
RETAINED_RULE = "retained-"
RETAINED_FOR = f"{GROUP}/retained-for"
"""On that rule: the UIDs of the claims. While all of them hold the card, nothing is kept back."""
UNBOOKED_TAINT = f"{LOCAL_DRIVER}/used-beyond-booking"
"""Its value: how much of the card's memory is used and not booked. With effect None it only tells."""

ATTACHED = f"{REMOTE_DRIVER}/attached"
ATTACH_FAILED = f"{REMOTE_DRIVER}/attach-failed"
"""Conditions of a remote device in `status.devices`: kube-scheduler binds the pod at the one, drops the choice at the other."""
HEALTHY = f"{REMOTE_DRIVER}/healthy"
UNREACHABLE_TAINT = f"{REMOTE_DRIVER}/unreachable"
RELEASING_TAINT = f"{REMOTE_DRIVER}/releasing"
DRAINING_TAINT = f"{REMOTE_DRIVER}/draining"
REMOTE_LOST_TAINT = f"{REMOTE_DRIVER}/lost"
BACK_OFF_TAINT = f"{REMOTE_DRIVER}/attach-failed"

CDI_VENDOR = f"k8s.{LOCAL_DRIVER}"
REMOTE_CDI_VENDOR = f"k8s.{REMOTE_DRIVER}"
CDI_CLASS = "claim"

MEMORY_LIMIT_ANNOTATION = f"{GROUP}/memory-limit"
"""On a claim: another limit for the memory of its shares, up to what it has booked; taken while programs run."""
ALLOCATED_BY_LABEL = f"{GROUP}/allocated-by"
"""On a Node: who allocates its cards; `controller`, or kube-scheduler where it says nothing."""
GANG_ANNOTATION = f"{GROUP}/gang"
GANG_SIZE_ANNOTATION = f"{GROUP}/gang-size"
"""On pods: they belong together by this name in their namespace, and are allocated all at once or not at all."""
WORKLOAD_LABEL = f"{GROUP}/workload-type"
TRANSLATE_LABEL = f"{GROUP}/translate"
"""On a namespace, "true": its pods may ask for cards by old names."""
TRANSLATED_LABEL = f"{GROUP}/translated"
"""On a pod, "true": it asked by old names, and the templates that it names are to be made."""
TRANSLATION_ANNOTATION = f"{GROUP}/translation"
"""On such a pod: what was read and what it got, for people. Nothing reads it."""
CLASS_LABEL = f"{GROUP}/class"
"""On a DeviceClass: the ElasticGPUClass that it was made from."""

DRIVER_PODS = {"app.kubernetes.io/name": "elastic-gpu", "app.kubernetes.io/component": "node"}
"""The labels by which the chart's node driver pods are known."""

ACCEPTED = "Accepted"
MATCHING = "Matching"
READY = "Ready"
REACHABLE = "Reachable"
"""Of a RemotePool: it answers."""
RESIZED = "Resized"
"""Of a device in a claim's status: whether the limit that the claim's annotation asks for is set."""

LEASE_FINALIZER = f"{GROUP}/lease"
"""On a RemoteLease: the pool has not confirmed yet that the card is free."""

FIELD_MANAGER = "elastic-gpu"

VISIBLE_DEVICES_ENV = "NVIDIA_VISIBLE_DEVICES"
MEMORY_REQUEST_ENV = "NVIDIA_GPU_MEMORY_REQUEST"
MEMORY_LIMIT_ENV = "NVIDIA_GPU_MEMORY_LIMIT"
"""In MiB; NVIDIA's hook sets them on the container's control group."""
SHARE_MEMORY_ENV = "ELASTIC_GPU_MEMORY_"
SHARE_CORES_ENV = "ELASTIC_GPU_CORES_"
"""In the container: `ELASTIC_GPU_MEMORY_<minor>=8192Mi` and `ELASTIC_GPU_CORES_<minor>=50`, what a share is, whether or not it is
held to it: for programs that size themselves. With two shares of one card, those of one of them."""
CARD_ENV_PREFIX = "ELASTIC_GPU_CARD_"
"""In the container: `ELASTIC_GPU_CARD_<minor>=<uuid>`, one variable a card. The minor number is unique on the node and
is the number in /dev/nvidia<minor>, so that a second claim in the same container adds a variable and replaces none."""

METRIC_PREFIX = "elasticgpu_"
