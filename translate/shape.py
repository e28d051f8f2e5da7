"""What one container of an old manifest gets, as a name: the name of the ResourceClaimTemplate that gives it.

    Shape <--> translated.n2.c50.m8192mi.inference.elasticgpu.io --> ResourceClaimTemplate

The name says all there is to the template, so whoever sees it in a pod can make the template, and no second place has
to be believed. What must stay true: `read(name(shape)) == shape`, and one shape has one name.
"""

import re
from dataclasses import dataclass
from typing import Any

from api import names, quantity

_NAME = re.compile(
    r"translated\.n(?P<count>[1-9]\d{0,3})(?:\.c(?P<cores>0|[1-9]\d{0,2}))?(?:\.m(?P<memory>[1-9]\d{0,9})mi)?"
    r"\.(?P<class>[a-z].*)"
)
_MIB = 2**20
REQUEST = "card"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """`count` cards of a class, or as many shares of different cards. `cores` in percent and `memory_mib` of each card.

    Neither given: whole cards. One of a share that is None is taken in full.
    """

    device_class: str
    count: int = 1
    cores: int | None = None
    memory_mib: int | None = None

    @property
    def whole(self) -> bool:
        return self.cores is None and self.memory_mib is None

    def __str__(self) -> str:
        if self.whole:
            return f"{self.count} whole card{'s' if self.count > 1 else ''} of class {self.device_class}"
        cores = (
            "all of its cores" if self.cores is None else f"{self.cores} % of its cores" if self.cores else "no cores"
        )
        memory = (
            "all of its memory" if self.memory_mib is None else f"{quantity.text(self.memory_mib * _MIB)} of memory"
        )
        of = "a card" if self.count == 1 else f"each of {self.count} cards"
        return f"{memory} and {cores} of {of} of class {self.device_class}"


def name(shape: Shape) -> str:
    cores = "" if shape.cores is None else f".c{shape.cores}"
    memory = "" if shape.memory_mib is None else f".m{shape.memory_mib}mi"
    return f"translated.n{shape.count}{cores}{memory}.{shape.device_class}"


def read(text: str) -> Shape | None:
    """The shape that a template's name stands for; None where it is no name of ours."""
    match = _NAME.fullmatch(text)
    if match is None:
        return None
    amounts = {key: int(match[key]) if match[key] else None for key in ("cores", "memory")}
    return Shape(
        device_class=match["class"], count=int(match["count"]), cores=amounts["cores"], memory_mib=amounts["memory"]
    )


def template(shape: Shape, namespace: str = "") -> dict[str, Any]:
    """Without a namespace it is for that of whoever applies it."""
    exactly: dict[str, Any] = {"deviceClassName": shape.device_class}
    if shape.count > 1:
        exactly["count"] = shape.count
    amounts = {}
    if shape.cores is not None:
        amounts[names.CORES] = str(shape.cores)
    if shape.memory_mib is not None:
        amounts[names.MEMORY] = quantity.text(shape.memory_mib * _MIB)
    if amounts:
        exactly["capacity"] = {"requests": amounts}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name(shape)} | ({"namespace": namespace} if namespace else {}),
        "spec": {"spec": {"devices": {"requests": [{"name": REQUEST, "exactly": exactly}]}}},
    }
