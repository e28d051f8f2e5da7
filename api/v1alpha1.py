"""Our versioned kinds: the opaque configs that claims and classes carry, and the CRDs.

    parameters of a claim or a class -> decode_config -> CardConfig or ShareConfig
    an ElasticGPUClass's spec        -> decode_class  -> ClassSpec
    the types below                  -> api.crds      -> charts/elastic-gpu/crds

What is read is read strictly, also from the API server: a field that a newer release stored and this one does not
know must not be passed over in silence. Fields that are added need a default, fields are never renamed.
"""

import enum
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from msgspec import Meta

from api import errors, names, schema

T = TypeVar("T")

CLASS_KIND = "ElasticGPUClass"
CLASS_PLURAL = "elasticgpuclasses"


class Backend(enum.Enum):
    WHOLE = "Whole"
    SHARE = "Share"
    REMOTE = "Remote"


class Allocator(enum.Enum):
    SCHEDULER = "Scheduler"
    CONTROLLER = "Controller"


class AllocationMode(enum.Enum):
    WAIT = "WaitForFirstConsumer"
    IMMEDIATE = "Immediate"


class AllocationPolicy(enum.Enum):
    BIN_PACK = "BinPack"
    SPREAD = "Spread"
    LEAST_FRAGMENTATION = "LeastFragmentation"


class Enforcement(enum.Enum):
    REQUIRED = "Required"
    BEST_EFFORT = "BestEffort"
    BURST = "Burst"


class Rung(enum.Enum):
    DRIVER = "Driver"
    MPS = "MPS"
    HAMI = "HAMi"


class Fallback(enum.Enum):
    NOTHING = "None"
    WHOLE_CARD = "WholeCard"


class ReclaimPolicy(enum.Enum):
    DELETE = "Delete"
    RETAIN = "Retain"


class CardConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How whole cards are handed to containers. There is nothing to choose yet."""


class ShareConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """That shares of cards are handed out, and how firmly. A claim may be stricter than its class, never laxer.

    memory: Required refuses a share whose memory limit the node cannot hold, BestEffort holds what can be held.
    cores: The same for the share of the card's compute; Burst books it and holds nothing, so that a share uses what others
        leave idle.
    accept: The ways of holding a share that will do; none given: all.
    fallback: What a claim gets on an API server that stores no shares; None refuses it, and so does a claim that says so.
    """

    memory: Enforcement | None = None
    cores: Enforcement | None = None
    accept: Annotated[tuple[Rung, ...], Meta(min_length=1, max_length=len(Rung))] | None = None
    fallback: Fallback | None = None


Config = CardConfig | ShareConfig
"""Every opaque config that the driver of local cards takes."""

_CONFIGS: dict[str, type[Config]] = {"CardConfig": CardConfig, "ShareConfig": ShareConfig}


def encode_config(config: msgspec.Struct) -> dict[str, Any]:
    """The opaque parameters that `decode_config` reads, their names in order.

    The API server keeps the bytes as they come, but a server-side apply to a claim that carries them writes them anew in
    order; where that differs, it takes the allocation for changed and refuses the status (seen on 1.37.2).
    """
    told = msgspec.json.decode(msgspec.json.encode(config)) | {
        "apiVersion": names.API_VERSION,
        "kind": type(config).__name__,
    }
    return {name: told[name] for name in sorted(told) if told[name] is not None}


def decode_config(parameters: Any, where: str) -> Config:
    """The opaque parameters of a claim's or a class's config for the driver of local cards, as `decode_one_of` reads them."""
    return decode_one_of(_CONFIGS, parameters, where)


def decode_one_of(kinds: Mapping[str, type[T]], parameters: Any, where: str) -> T:
    """Opaque parameters as the one of `kinds` that they name.

    `where` opens the message, for example "config of class training.elasticgpu.io". Raises Invalid with the field's
    path.
    """
    if not isinstance(parameters, dict):
        raise errors.Invalid(f"{where}: parameters must be an object with apiVersion and kind")
    version, kind = parameters.get("apiVersion"), parameters.get("kind")
    if version != names.API_VERSION:
        raise errors.Invalid(f"{where}: apiVersion is {version!r} at $.apiVersion; known: {names.API_VERSION}")
    type_ = kinds.get(kind) if isinstance(kind, str) else None
    if type_ is None:
        raise errors.Invalid(f"{where}: kind is {kind!r} at $.kind; known: {', '.join(sorted(kinds))}")
    fields = {name: value for name, value in parameters.items() if name not in ("apiVersion", "kind")}
    return schema.decode(type_, fields, where)


_SET = Meta(extra_json_schema={"x-kubernetes-list-type": "set"})
_MAP_BY_TYPE = Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]})
_DATE_TIME = Meta(extra_json_schema={"format": "date-time"})
_LABEL = r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_AMOUNT = r"^([0-9]+(\.[0-9]+)?)([KMGTPE]i|[kMGTPE])?$"

Amount = Annotated[str, Meta(pattern=_AMOUNT, max_length=32)] | Annotated[int, Meta(ge=0)]
WorkloadType = Annotated[str, Meta(pattern=_LABEL, max_length=63)]
ResourceName = Annotated[
    str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", max_length=253)
]
Glob = Annotated[str, Meta(pattern="^[ -~]+$", max_length=64)]


class Cards(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Which cards the class is made of. All that is given must hold; nothing given takes every card.

    product_names: Patterns for the card's product name, of which one must match the whole name, case counting.
        * stands for any characters, ? for one.
    min_memory: The least memory a card has, for example 24Gi.
    expression: A CEL text over `device`, as in a DeviceClass. Only cards of this driver are put to it.
    """

    product_names: Annotated[tuple[Glob, ...], Meta(max_length=32), _SET] = ()
    min_memory: Amount | None = None
    expression: Annotated[str, Meta(max_length=8192)] = ""


class Allocation(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Who picks the card, when, and which.

    by: Scheduler leaves it to kube-scheduler, Controller to this driver's controller on nodes that are given to it.
    mode: WaitForFirstConsumer allocates when a pod needs the claim, Immediate at once.
    policy: BinPack fills cards and nodes, Spread spreads over them, LeastFragmentation keeps large gaps whole.
    """

    by: Allocator = Allocator.SCHEDULER
    mode: AllocationMode = AllocationMode.WAIT
    policy: AllocationPolicy = AllocationPolicy.BIN_PACK

    RULES: ClassVar[tuple[schema.Rule, ...]] = (
        schema.Rule(
            text="self.by == 'Controller' || self.mode == 'WaitForFirstConsumer'",
            message="mode Immediate needs by: Controller, since kube-scheduler allocates only for a pod",
        ),
        schema.Rule(
            text="self.by == 'Controller' || self.policy == 'BinPack'",
            message="policies other than BinPack need by: Controller, since kube-scheduler takes the first card that fits",
        ),
    )


class Share(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How firmly a share of a card is held.

    memory: Required starts no pod on a node that cannot hold the memory limit, BestEffort holds what can be held.
    cores: The same for the share of the card's compute; Burst books it and holds nothing, so that a share uses what others
        leave idle.
    accept: The ways of holding a share that this class takes.
    fallback: What a claim gets on an API server that stores no shares (before Kubernetes 1.36, unless the feature gate
        DRAConsumableCapacity is on): None refuses it when its pod starts, WholeCard gives all of the card.
    """

    memory: Enforcement = Enforcement.REQUIRED
    cores: Enforcement = Enforcement.BEST_EFFORT
    accept: Annotated[tuple[Rung, ...], Meta(min_length=1, max_length=len(Rung)), _SET] = (
        Rung.DRIVER,
        Rung.MPS,
        Rung.HAMI,
    )
    fallback: Fallback = Fallback.NOTHING

    RULES: ClassVar[tuple[schema.Rule, ...]] = (
        schema.Rule(
            text="self.memory != 'Burst'",
            message="memory cannot burst: what one share takes beyond its own, another one lacks",
        ),
    )


class ClassSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What claims of the class get.

    backend: Whole gives whole cards, Share shares of cards, Remote cards of other machines.
    workload_types: Pods labelled elasticgpu.io/workload-type with one of these use the class. A type belongs to one
        class: the one that was created first.
    cards: Which cards the class is made of.
    allocation: Who picks the card, when, and which.
    share: How firmly a share is held; for backend Share alone.
    extended_resource_name: A resource name such as nvidia.com/gpu by which containers may ask for whole cards of the class
        without a claim; kube-scheduler makes it. One class per name, and no device plugin that has it too.
    reclaim_policy: Delete makes a released card free at once, Retain keeps it back until an admin frees it
        (kubectl egpu release); it needs DeviceTaintRules, and goes with local cards alone.
    """

    backend: Backend
    workload_types: Annotated[tuple[WorkloadType, ...], Meta(max_length=16), _SET] = ()
    cards: Cards = Cards()
    allocation: Allocation = Allocation()
    share: Share | None = None
    extended_resource_name: ResourceName | None = None
    reclaim_policy: ReclaimPolicy = ReclaimPolicy.DELETE

    RULES: ClassVar[tuple[schema.Rule, ...]] = (
        schema.Rule(text="!has(self.share) || self.backend == 'Share'", message="share goes with backend Share alone"),
        schema.Rule(
            text="!has(self.extendedResourceName) || self.backend != 'Share'",
            message="extendedResourceName cannot go with backend Share, since a resource name has no room for amounts",
        ),
    )


class Condition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One aspect of the class's state.

    type: Accepted, Matching or Ready.
    status: True, False or Unknown.
    reason: One word for programs.
    message: What it means and what to do about it.
    last_transition_time: When status changed last.
    observed_generation: The generation of the class that this was found for.
    """

    type: Annotated[str, Meta(max_length=64)]
    status: Annotated[str, Meta(max_length=16)]
    reason: Annotated[str, Meta(max_length=128)]
    message: Annotated[str, Meta(max_length=4096)] = ""
    last_transition_time: Annotated[str, _DATE_TIME]
    observed_generation: int = 0


class ClassStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of the class. Written by the controller.

    observed_generation: The generation of the class that the rest of the status was found for.
    device_class: The DeviceClass that claims name; empty while there is none.
    matching_cards: How many cards the class matches at present.
    conditions: Accepted (the class can be honoured), Matching (there are such cards), Ready (claims can use it).
    """

    observed_generation: int = 0
    device_class: str = ""
    matching_cards: int = 0
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=8), _MAP_BY_TYPE] = ()


class ElasticGPUClass(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A kind of GPU on offer, named by the work that it is for. Claims name it as their deviceClassName.

    spec: What claims of the class get.
    status: What became of the class. Written by the controller.
    """

    spec: ClassSpec
    status: ClassStatus | None = None

    RULES: ClassVar[tuple[schema.Rule, ...]] = (
        schema.Rule(
            text="self.metadata.name.size() <= 63",
            message="the name may have 63 characters, since it becomes a label's value",
        ),
    )


def decode_class(data: Any, where: str) -> ClassSpec:
    """The spec of an ElasticGPUClass object. Raises Invalid with the field's path."""
    return schema.decode(ElasticGPUClass, {"spec": data.get("spec")}, where).spec
