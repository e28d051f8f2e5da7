"""Which config speaks for a result, as tables."""

from typing import Any

import pytest

from api import errors, resource, v1alpha1
from api.v1alpha1 import Enforcement, Rung
from driver import configs

DRIVER = "gpu.elasticgpu.io"
Said = tuple[str, dict[str, Any]]
CARD: dict[str, Any] = {"kind": "CardConfig"}
SHARE: dict[str, Any] = {"kind": "ShareConfig"}


def _chosen(*said: Said, requests: tuple[str, ...] = (), driver: str = DRIVER) -> v1alpha1.Share | None:
    """`said` by `class` or `claim`, in the order of the API."""
    claim = resource.Claim(
        uid=resource.ClaimUID("a"),
        namespace="ns",
        name="a",
        results=(resource.Result(request="gpu/big", driver=DRIVER, pool="p", device="d"),),
        configs=tuple(
            resource.Config(
                driver=driver,
                requests=requests,
                from_class=who == "class",
                parameters={"apiVersion": "elasticgpu.io/v1alpha1"} | parameters,
            )
            for who, parameters in said
        ),
    )
    (share,) = configs.chosen(claim, DRIVER)
    return share


def test_who_says_nothing_gets_a_whole_card() -> None:
    assert _chosen() is None
    assert _chosen(("class", CARD)) is None


def test_a_class_of_shares_gives_shares_with_the_firmness_of_the_crd() -> None:
    assert _chosen(("class", SHARE)) == v1alpha1.Share()


def test_where_the_class_says_nothing_the_claim_does() -> None:
    assert _chosen(("claim", SHARE | {"memory": "BestEffort"})) == v1alpha1.Share(memory=Enforcement.BEST_EFFORT)


@pytest.mark.parametrize(
    ("of_class", "of_claim", "text"),
    [
        (CARD, SHARE, "the claim's own config is a ShareConfig, its class gives whole cards; name another class"),
        (SHARE, CARD, "the claim's own config is a CardConfig, its class gives shares; name another class"),
        (
            SHARE | {"accept": ["Driver"]},
            SHARE | {"accept": ["HAMi", "MPS"]},
            "the claim accepts HAMi, MPS, its class Driver: no way of holding the share is left",
        ),
    ],
)
def test_a_claim_cannot_turn_its_class_around(of_class: Any, of_claim: Any, text: str) -> None:
    with pytest.raises(errors.Invalid) as refused:
        _chosen(("class", of_class), ("claim", of_claim))
    assert str(refused.value).startswith("request gpu/big of claim ns/a: ")
    assert text in str(refused.value)


def test_a_claim_may_be_stricter_than_its_class_and_never_laxer() -> None:
    lax = {"memory": "BestEffort", "cores": "Required", "accept": ["Driver", "HAMi"]}
    strict = {"memory": "Required", "cores": "BestEffort", "accept": ["HAMi", "MPS"]}
    assert _chosen(("class", SHARE | lax), ("claim", SHARE | strict)) == v1alpha1.Share(
        memory=Enforcement.REQUIRED, cores=Enforcement.REQUIRED, accept=(Rung.HAMI,)
    )


@pytest.mark.parametrize(
    ("of_class", "of_claim", "cores"),
    [
        ("Burst", None, Enforcement.BURST),
        ("Burst", "BestEffort", Enforcement.BEST_EFFORT),
        ("Burst", "Required", Enforcement.REQUIRED),
        ("BestEffort", "Burst", Enforcement.BEST_EFFORT),
    ],
)
def test_bursting_is_for_the_class_to_allow_and_for_the_claim_to_do_without(
    of_class: str, of_claim: str | None, cores: Enforcement
) -> None:
    share = _chosen(
        ("class", SHARE | {"cores": of_class}), ("claim", SHARE | ({"cores": of_claim} if of_claim else {}))
    )
    assert share is not None
    assert share.cores is cores


def test_memory_cannot_burst() -> None:
    with pytest.raises(errors.Invalid, match="memory cannot burst: what it takes beyond its own, another one lacks"):
        _chosen(("class", SHARE | {"memory": "Burst"}))


@pytest.mark.parametrize(
    ("of_class", "of_claim", "told"),
    [
        ("WholeCard", None, "WholeCard"),
        ("WholeCard", "None", "None"),
        (None, "WholeCard", "None"),
        (None, None, "None"),
    ],
)
def test_a_whole_card_instead_of_a_share_is_for_the_class_to_allow(
    of_class: str | None, of_claim: str | None, told: str
) -> None:
    class_, claim = ({"fallback": word} if word else {} for word in (of_class, of_claim))
    share = _chosen(("class", SHARE | class_), ("claim", SHARE | claim))
    assert share is not None
    assert share.fallback.value == told


def test_of_one_author_the_last_config_counts() -> None:
    share = _chosen(("class", SHARE | {"memory": "Required"}), ("class", SHARE | {"memory": "BestEffort"}))
    assert share is not None
    assert share.memory is Enforcement.BEST_EFFORT


@pytest.mark.parametrize(
    ("requests", "driver", "covered"),
    [
        (("gpu",), DRIVER, True),
        (("gpu/big",), DRIVER, True),
        (("gpu/small",), DRIVER, False),
        ((), "nic.example.com", False),
    ],
)
def test_only_what_speaks_of_this_request_and_to_this_driver_counts(
    requests: tuple[str, ...], driver: str, covered: bool
) -> None:
    assert (_chosen(("class", SHARE), requests=requests, driver=driver) is not None) is covered
