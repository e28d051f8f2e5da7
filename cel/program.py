"""A CEL text of a DeviceClass or a request -> a Program that says which devices it matches.

text --> parser (tree) --> checker (types) --> cost (worst case) --> compiler (closure) --> Program
Program + Device --> True, False, or Failed; remembered for each device that says the same of itself
"""

import functools
from collections.abc import Mapping
from typing import Any

from api import errors
from cel import checker, compiler, cost, devices, kubernetes, parser, types, values

LONGEST = 10 * 1024
"""Bytes of a text that the API server stores."""
_MANY = 4096
version = kubernetes.to_semver
"""A version attribute as a Device has it. Raises Failed for what is none."""


class Program:
    """A text that can be judged. `cost`: in the worst case, in the API server's units."""

    def __init__(self, text: str, expression: compiler.Expression, cost: int) -> None:
        self.text, self.cost = text, cost
        self._expression = expression
        self._known: dict[tuple[devices.Device, tuple[type, ...]], bool | str] = {}

    def matches(self, device: devices.Device) -> bool:
        """Raises Failed where the text cannot be judged on this device, such as for an attribute that it lacks.

        kube-scheduler then gives up the pod, on all nodes.
        """
        key = device, tuple([type(value) for _, value in device.attributes])  # 1 is not true, though Python has it so
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MANY:
                self._known.clear()
            found = self._known[key] = self._judged(device)
        if isinstance(found, str):
            raise values.Failed(found)
        return found

    def _judged(self, device: devices.Device) -> bool | str:
        if device.odd:
            return device.odd
        try:
            found = self._expression.value(_variable(device))
        except values.Failed as error:
            return str(error)
        except RecursionError:
            return "the values are nested too deeply"
        return found if isinstance(found, bool) else f"the result is of type {values.type_of(found)}, and not bool"


@functools.lru_cache(maxsize=1024)
def compile(text: str, *, stored: bool = False) -> Program:  # noqa: A001  the word that everybody knows it by
    """Raises Invalid where the API server would refuse the text: place and reason, too long, or too costly.

    `stored`: the API server has taken it, maybe with feature gates of its own; attributes may then be lists.
    """
    size = len(text.encode())
    if size > LONGEST:
        raise errors.Invalid(f"the CEL text has {size} bytes; {LONGEST} are allowed")
    try:
        found = checker.check(parser.parse(text), text, stored=stored)
        expression = compiler.compile_(found)
    except RecursionError as error:
        raise errors.Invalid("the CEL text is nested too deeply") from error
    result = found.types[found.root]
    if result not in (types.BOOL, types.DYN if stored else types.ANY):
        raise errors.Invalid(f"line 1, column 1: must evaluate to bool or the unknown type, not {result}")
    units = cost.most(found)
    if units > cost.LIMIT and not stored:
        raise errors.Invalid(f"too complex: {units} units in the worst case, {cost.LIMIT} are allowed")
    return Program(text, expression, units)


def _variable(device: devices.Device) -> Mapping[str, Any]:
    return {
        "driver": device.driver,
        "allowMultipleAllocations": device.shared,
        "attributes": _by_domain(device.driver, ((name, _value(value)) for name, value in device.attributes)),
        "capacity": _by_domain(
            device.driver, ((name, kubernetes.of_amount(amount)) for name, amount in device.capacity)
        ),
    }


def _value(attribute: devices.Attribute) -> Any:
    return list(attribute) if isinstance(attribute, tuple) else attribute


def _by_domain(driver: str, found: Any) -> values.Entries:
    domains: dict[str, dict[str, Any]] = {}
    for name, value in found:
        domain, mark, bare = name.partition("/")
        domains.setdefault(domain if mark else driver, {})[bare if mark else name] = value
    return values.Entries(domains)
