"""Names, order, versions and differences: all values, no cards."""

import pytest

from driver import inventory


def a_card(uuid: str = "GPU-AA", **facts: object) -> inventory.Card:
    return inventory.Card(uuid=inventory.CardUUID(uuid), **{"minor": 0, "pci_bus_id": "0000:0a:00.0"} | facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("570.158.01", "570.158.1"),
        ("580.95.05", "580.95.5"),
        ("13.0", "13.0.0"),
        ("580", "580.0.0"),
        ("0.0.0", "0.0.0"),
        ("6.10.5.1", None),  # AMD PR#68
        ("", None),
        (None, None),
        ("v1.2.3", None),
        ("1..2", None),
        ("1.2.3-rc1", None),
        ("1.2.3\n", None),
        ("٣.1.2", None),
        ("1234567890.1.2", None),
    ],
)
def test_a_version_becomes_semver_or_nothing(text: str | None, expected: str | None) -> None:
    assert inventory.semver(text) == expected


def test_a_name_is_the_uuid_in_lower_case_without_its_prefix() -> None:
    assert a_card("GPU-8A1F6C52-0d4e").name == "gpu-8a1f6c52-0d4e"


def test_cards_are_ordered_by_address_then_uuid_and_those_without_address_come_last() -> None:
    cards = (
        a_card("GPU-1", pci_bus_id=None),
        a_card("GPU-3"),
        a_card("GPU-2"),
        a_card("GPU-9", pci_bus_id="0000:01:00.0"),
    )
    assert [card.uuid for card in inventory.ordered(cards)] == ["GPU-9", "GPU-2", "GPU-3", "GPU-1"]


def test_a_difference_tells_added_removed_and_changed() -> None:
    old = inventory.Inventory(cards=(a_card("GPU-1"), a_card("GPU-2"), a_card("GPU-3")))
    new = inventory.Inventory(cards=(a_card("GPU-2", minor=5), a_card("GPU-3"), a_card("GPU-4")))
    told = inventory.difference(old, new)
    assert [card.uuid for card in told.added] == ["GPU-4"]
    assert [card.uuid for card in told.removed] == ["GPU-1"]
    assert [(card.uuid, card.minor) for card in told.changed] == [("GPU-2", 5)]


def test_a_card_that_stops_answering_is_not_removed() -> None:
    card = a_card("GPU-1")
    fault = inventory.Fault(kind=inventory.FaultKind.LOST, why="GPU is lost", uuid=card.uuid, card=card)
    told = inventory.difference(inventory.Inventory(cards=(card,)), inventory.Inventory(faults=(fault,)))
    assert told == inventory.Difference()


def test_an_inventory_equals_itself() -> None:
    one = inventory.Inventory(cards=(a_card(),))
    assert inventory.difference(one, one) == inventory.Difference()
