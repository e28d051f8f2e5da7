"""What a DRA selector may name: the variable `device`, the functions, the names of types."""

from collections.abc import Mapping

from cel import clock, formats, functions, kubernetes, lists, network, standard, text, types

FUNCTIONS = functions.table(
    (
        *standard.ROWS,
        *clock.ROWS,
        *text.ROWS,
        *lists.ROWS,
        *kubernetes.ROWS,
        *network.ROWS,
        *formats.ROWS,
        *standard.OPTIONAL,
    )
)
TYPE_NAMES: Mapping[str, types.Type] = types.NAMED | {
    "list": types.listed(types.DYN),
    "map": types.mapped(types.DYN, types.DYN),
    "type": types.Type("type"),
    "optional_type": types.optional(types.DYN),
}
DEVICE = "device"
NEWER = frozenset(("includes",))
"""Functions that the API server judges in stored texts, and does not take in new ones yet."""


def fields(attribute: types.Type) -> Mapping[str, types.Type]:
    """The fields of the device. `attribute`: what is known of an attribute's type before it is seen."""
    return {
        "driver": types.STRING,
        "allowMultipleAllocations": types.BOOL,
        "attributes": types.mapped(types.STRING, types.mapped(types.STRING, attribute)),
        "capacity": types.mapped(types.STRING, types.mapped(types.STRING, types.QUANTITY)),
    }
