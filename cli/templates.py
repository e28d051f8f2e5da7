"""A workload type or a class, and a size -> the ResourceClaimTemplate that asks for it.

classes + what was asked --> chosen --> template --> YAML for `kubectl apply -f -`
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from api import errors, names, quantity
from view import picture

_WHOLE, _SHARE = "Whole", "Share"
_ALL_CORES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """`cores` in percent of a card, `memory` as a quantity; both None for what the class gives without them."""

    count: int = 1
    cores: int | None = None
    memory: str | None = None


def chosen(classes: Sequence[picture.Class], wanted: str) -> picture.Class:
    """The class of that name, else the one for that workload type. Raises Invalid with what there is."""
    for found in classes:
        if found.name == wanted:
            return found
    for found in classes:
        if wanted in found.workload_types:
            return found
    known = [f"{kind} ({found.name})" for found in classes for kind in found.workload_types]
    there = ", ".join(known or [found.name for found in classes]) or "none"
    raise errors.Invalid(f"no class is named {wanted!r} or made for that workload type; there are: {there}")


def template(name: str, namespace: str, of: picture.Class, size: Size) -> dict[str, Any]:
    """Without a namespace it is for that of whoever applies it. Raises Invalid where the class cannot give it."""
    exactly: dict[str, Any] = {"deviceClassName": of.name}
    if size.count != 1:
        exactly["count"] = size.count
    if amounts := _amounts(of, size):
        exactly["capacity"] = {"requests": amounts}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name} | ({"namespace": namespace} if namespace else {}),
        "spec": {"spec": {"devices": {"requests": [{"name": "card", "exactly": exactly}]}}},
    }


def usage(name: str) -> str:
    """How a pod uses it, as comments below the template."""
    return f"""\
# In the pod:
#   spec:
#     resourceClaims: [{{name: card, resourceClaimTemplateName: {name}}}]
#     containers:
#     - resources: {{claims: [{{name: card}}]}}
"""


def _amounts(of: picture.Class, size: Size) -> dict[str, str]:
    if size.count < 1:
        raise errors.Invalid(f"--count is {size.count}; it must be 1 or more")
    if of.backend == _WHOLE and (size.cores is not None or size.memory is not None):
        raise errors.Invalid(
            f"class {of.name} gives whole cards: leave --cores and --memory out, or ask for a class of shares"
        )
    amounts = {}
    if size.cores is not None:
        if not 0 <= size.cores <= _ALL_CORES:
            raise errors.Invalid(f"--cores is {size.cores}; it is a percentage of a card, from 0 to 100")
        amounts["cores"] = str(size.cores)
    if size.memory is not None:
        if quantity.parse(size.memory) < 2**20:
            raise errors.Invalid(f"--memory is {size.memory!r}; it must be 1Mi or more, with a suffix such as Gi")
        amounts[names.MEMORY] = size.memory
    if of.backend == _SHARE and len(amounts) < 2:  # noqa: PLR2004  both
        raise errors.Invalid(
            f"class {of.name} gives shares, and what is not named is taken whole: give --cores and --memory both"
        )
    return amounts
