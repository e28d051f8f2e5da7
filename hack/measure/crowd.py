"""A large cluster as the API's JSON, for what is measured without a cluster: N nodes of eight cards, and claims on them."""

import random
from collections.abc import Iterator, Mapping
from typing import Any

DRIVER = "gpu.example.com"
CLASS = "share.example.com"
CARDS = 8
GIB = 1024**3
_MODELS = ("Card Large", "Card Small")
JSON = Mapping[str, Any]


def node(number: int) -> dict[str, Any]:
    name = f"node-{number:05}"
    has = {"cpu": "128", "memory": "1024Gi", "pods": "250"}
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": {"allocatable": has}}


def slice_(number: int) -> dict[str, Any]:
    name = f"node-{number:05}"
    return {
        "metadata": {"name": f"00001-{name}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": f"cards/{name}", "generation": 1, "resourceSliceCount": 1},
            "devices": [_device(number, card) for card in range(CARDS)],
        },
    }


def _device(number: int, card: int) -> dict[str, Any]:
    texts = {
        "type": "gpu",
        "uuid": f"GPU-{number:05}-{card}",
        "productName": _MODELS[number % 10 == 0],
        "brand": "Card",
        "architecture": "Known",
        "resource.kubernetes.io/pciBusID": f"0000:{card:02x}:00.0",
        "resource.kubernetes.io/pcieRoot": f"pci0000:{card // 4:02x}",
        "backend": "local",
        "memoryEnforcement": "hami",
    }
    versions = {"cudaComputeCapability": "9.0.0", "driverVersion": "580.95.5"}
    attributes: dict[str, Any] = {name: {"string": value} for name, value in texts.items()}
    attributes |= {name: {"version": value} for name, value in versions.items()}
    attributes["resource.kubernetes.io/numaNode"] = {"int": card // 4}
    return {
        "name": f"gpu-{card}",
        "attributes": attributes,
        "allowMultipleAllocations": True,
        "capacity": {
            "cores": {"value": "100", "requestPolicy": {"default": "100", "validRange": {"min": "0", "step": "1"}}},
            "memory": {
                "value": "80Gi",
                "requestPolicy": {"default": "80Gi", "validRange": {"min": "1Mi", "step": "1Mi"}},
            },
        },
    }


def class_() -> dict[str, Any]:
    text = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "gpu"'
    return {"metadata": {"name": CLASS}, "spec": {"selectors": [{"cel": {"expression": text}}]}}


def claim(
    name: str, *, cores: int | None = 25, memory_gib: int = 20, count: int = 1, model: str = _MODELS[0]
) -> dict[str, Any]:
    text = f'device.attributes["{DRIVER}"].productName == "{model}"'
    exactly: dict[str, Any] = {
        "deviceClassName": CLASS,
        "allocationMode": "ExactCount",
        "count": count,
        "selectors": [{"cel": {"expression": text}}],
    }
    if cores is not None:
        exactly["capacity"] = {"requests": {"cores": str(cores), "memory": f"{memory_gib}Gi"}}
    requests = [{"name": "card", "exactly": exactly}]
    meta = {"name": name, "namespace": "default", "uid": name}
    return {"metadata": meta, "spec": {"devices": {"requests": requests}}}


def held(name: str, number: int, card: int, parts: int) -> dict[str, Any]:
    """A claim that has so many quarters of a card."""
    result = {
        "request": "card",
        "driver": DRIVER,
        "pool": f"cards/node-{number:05}",
        "device": f"gpu-{card}",
        "shareID": f"{number:08}-0000-0000-0000-{card:04}{name[-8:].rjust(8, '0')}",
        "consumedCapacity": {"cores": str(25 * parts), "memory": f"{20 * parts}Gi"},
    }
    return claim(name) | {"status": {"allocation": {"devices": {"results": [result]}}}}


def full(nodes: int, share: float, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Claims of one, two and four quarters until so much of all cards is held, on cards drawn at random."""
    draw, number = random.Random(seed), 0
    free = {(node, card): 4 for node in range(nodes) for card in range(CARDS)}
    places = list(free)
    left = int(nodes * CARDS * 4 * share)
    while left > 0:
        place = places[draw.randrange(len(places))]
        parts = min(draw.choice((1, 1, 2, 4)), left)
        if free[place] >= parts:
            free[place] -= parts
            left -= parts
            yield held(f"held-{number:08}", *place, parts)
            number += 1
