"""Every name that someone outside can see: group, drivers, attributes, capacities, taints, labels, conditions.

One place, so that the chart, the classes, the page and the tests cannot disagree. Attribute names follow
NVIDIA's driver where it has one, so that CEL texts carry over.
"""

GROUP = "elasticgpu.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

LOCAL_DRIVER = "gpu.elasticgpu.io"
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
PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"

CORES = "cores"
MEMORY = "memory"
SHARES = "shares"

XID_TAINT = f"{LOCAL_DRIVER}/xid"
LOST_TAINT = f"{LOCAL_DRIVER}/lost"
UNREADABLE_TAINT = f"{LOCAL_DRIVER}/unreadable"
MIG_TAINT = f"{LOCAL_DRIVER}/mig"

CDI_VENDOR = f"k8s.{LOCAL_DRIVER}"
CDI_CLASS = "claim"

WORKLOAD_LABEL = f"{GROUP}/workload-type"
CLASS_LABEL = f"{GROUP}/class"
"""On a DeviceClass: the ElasticGPUClass that it was made from."""

DRIVER_PODS = {"app.kubernetes.io/name": "elastic-gpu", "app.kubernetes.io/component": "node"}
"""The labels by which the chart's node driver pods are known."""

ACCEPTED = "Accepted"
MATCHING = "Matching"
READY = "Ready"

FIELD_MANAGER = "elastic-gpu"

VISIBLE_DEVICES_ENV = "NVIDIA_VISIBLE_DEVICES"
CARD_ENV_PREFIX = "ELASTIC_GPU_CARD_"
"""In the container: `ELASTIC_GPU_CARD_<minor>=<uuid>`, one variable a card. The minor number is unique on the node and
is the number in /dev/nvidia<minor>, so that a second claim in the same container adds a variable and replaces none."""

METRIC_PREFIX = "elasticgpu_"
