"""The picture as JSON."""

import json

from tests.view.objects import GI, a_card, a_claim, a_result, a_slice, name_of, view
from view import document


def test_a_card_is_a_plain_document_that_json_takes() -> None:
    found = view(a_slice(a_card()), a_claim("c", a_result()))
    (item,) = json.loads(json.dumps(document.listing("Card", found.cards, found)))["items"]
    assert (item["kind"], item["name"], item["state"], item["busId"]) == ("Card", name_of(1), "Held", "0000:01:00.0")
    assert item["capacity"] == {"memory": 80 * GI}
    assert item["holders"][0]["className"] == "training.elasticgpu.io"


def test_what_could_not_be_read_is_said_beside_the_items() -> None:
    found = view({**a_claim(), "metadata": {}})
    assert document.listing("Claim", found.claims, found)["unreadable"] == [
        "an object without a name: Invalid('Object missing required field `name` - at `$.metadata`')"
    ]
