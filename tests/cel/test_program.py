"""What a selector says of a device, and what is wrong with one that cannot be judged."""

from fractions import Fraction

import pytest

import cel
from api import errors

DRIVER = "gpu.elasticgpu.io"
OWN = f'device.attributes["{DRIVER}"]'
BOMB = "".join(f"{list(range(10))}.all(x{depth}, " for depth in range(9)) + "true" + ")" * 9
"""Counts to a thousand million."""
CARD = cel.Device(
    driver=DRIVER,
    attributes=(
        ("productName", "NVIDIA L40S"),
        ("driverVersion", cel.version("580.95.5")),
        ("resource.kubernetes.io/numaNode", 1),
        ("healthy", True),
    ),
    capacity=(("memory", Fraction(48 * 2**30)), ("cores", Fraction(100))),
    shared=True,
)

TRUE = (
    f'device.driver == "{DRIVER}"',
    "device.allowMultipleAllocations",
    f'{OWN}.productName.matches("^(?:.*L40S.*)$")',
    f'{OWN}.productName.lowerAscii().contains("l40s")',
    f'"productName" in {OWN} && !("model" in {OWN})',
    f"has({OWN}.healthy) && {OWN}.healthy",
    f'{OWN}.?model.orValue("none") == "none"',
    f'{OWN}.?model.optMap(m, m == "x").orValue(true)',
    f'{OWN}.driverVersion.isGreaterThan(semver("550.0.0"))',
    f'{OWN}.driverVersion.compareTo(semver("v580.095.5", true)) == 0',
    f'device.capacity["{DRIVER}"].memory.compareTo(quantity("24Gi")) >= 0',
    f'device.capacity["{DRIVER}"].cores.asInteger() == 100',
    f'cel.bind(card, {OWN}, card.healthy && card.productName.startsWith("NVIDIA"))',
    'device.attributes["resource.kubernetes.io"].numaNode in [0, 1]',
    '"x" in device.attributes["a.domain.nobody.has"] == false',
    "[1, 2, 3].exists_one(x, x % 2 == 0) && [1, 2, 3].map(x, x > 1, x * 2) == [4, 6]",
    "[3, 1, 2].sortBy(x, -x) == [3, 2, 1] && [1, 2].transformMap(i, v, v) == {0: 1, 1: 2}",
    'sets.intersects(["a"], ["a", "b"]) && ["b", "a"].sort() == ["a", "b"]',
    'cidr("10.0.0.0/8").containsIP(ip("10.1.2.3")) && !isIP("10.1.2")',
    'format.dns1123Label().validate("Not_One").hasValue()',
    "dyn(1u) == 1 && 1 < 1.5 && dyn(1) != dyn(true)",
    "'\\x41\\u00e4\\n' == \"Aä\\n\" && r'\\d' == '\\\\d' && b'\\303\\244' == bytes('ä')",
    'string(1e6) == "1e+06" && string(0.5) == "0.5" && int("-7") / 2 == -3 && -7 % 3 == -1',
    'timestamp("2026-01-02T03:04:05Z") + duration("1h") > timestamp("2026-01-02T04:04:04.9Z")',
)


@pytest.mark.parametrize("text", TRUE)
def test_a_text_that_is_true_of_the_card(text: str) -> None:
    assert cel.compile(text).matches(CARD) is True


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("foo", "line 1, column 1: undeclared reference to 'foo'"),
        ("true &&\n  device.x", "line 2, column 9: undefined field 'x'"),
        ('1 + "a" == 2', "line 1, column 3: found no matching overload for '_+_' applied to (int, string)"),
        ("true || ", "line 1, column 9: syntax error at 'the end'"),
        ('"open', "line 1, column 1: syntax error at '\"'"),
        ("device.driver", "must evaluate to bool or the unknown type, not string"),
        ('device.driver.matches("(")', "line 1, column 22: invalid matches argument"),
        ('[1, "a"].size() == 2', "line 1, column 5: expected type 'int' but found 'string'"),
        ("has(device)", "invalid argument to has() macro"),
        ("package == 1", "line 1, column 1: reserved identifier: package"),
        ("9223372036854775808 > 0", "line 1, column 1: invalid int literal"),
        ("(" * 300 + "true" + ")" * 300, "nested more than 120 deep"),
        (f"device.driver == '{'x' * cel.LONGEST}'", "10240 are allowed"),
        ("device.driver.nosuch()", "undeclared reference to 'nosuch'"),
        (BOMB, "too complex: "),
    ],
)
def test_what_the_api_server_refuses_is_refused_with_its_place(text: str, place: str) -> None:
    with pytest.raises(errors.Invalid) as refused:
        cel.compile(text)
    assert place in str(refused.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f'{OWN}.model == "x"', "no such key: model"),
        (f"{OWN}.productName > 1", "no such overload"),
        (f"{OWN}.productName", "not bool"),
        ("1 / 0 == 1", "division by zero"),
        ("9223372036854775807 + 1 > 0", "integer overflow"),
        (f'{OWN}.productName.matches({OWN}.productName + "(")', "error parsing regexp"),
        ("[1][1] == 1", "index out of bounds: 1"),
    ],
)
def test_what_stops_the_scheduler_on_a_device_is_told_apart_from_no_match(text: str, why: str) -> None:
    with pytest.raises(cel.Failed, match=why):
        cel.compile(text).matches(CARD)


def test_an_error_on_one_side_is_forgiven_where_the_other_decides() -> None:
    assert cel.compile(f'{OWN}.model == "x" || true').matches(CARD)
    assert not cel.compile(f'{OWN}.model == "x" && false').matches(CARD)
    assert cel.compile("[1, 0, 2].exists(x, 2 / x == 1)").matches(CARD)
    with pytest.raises(cel.Failed, match="division by zero"):
        cel.compile("[1, 0].all(x, 2 / x > 0)").matches(CARD)


def test_a_text_that_would_count_to_a_thousand_million_is_given_up_where_it_is_judged_all_the_same() -> None:
    """As one is that an API server with a larger limit has stored."""
    with pytest.raises(cel.Failed, match="actual cost limit exceeded"):
        cel.compile(BOMB, stored=True).matches(CARD)


def test_a_pattern_that_explodes_elsewhere_takes_no_time() -> None:
    device = cel.Device(driver=DRIVER, attributes=(("s", "a" * 64),))
    assert not cel.compile(f'{OWN}.s.matches("^(a+)+$b")').matches(device)


def test_list_attributes_are_judged_in_texts_that_the_api_server_has_stored() -> None:
    device = cel.Device(driver=DRIVER, attributes=(("nodes", (0, 1)),))
    text = f"{OWN}.nodes.exists(n, n == 1)"
    assert cel.compile(text, stored=True).matches(device)
    with pytest.raises(errors.Invalid, match="cannot be range"):
        cel.compile(text)


def test_a_verdict_for_the_number_one_is_not_taken_for_one_of_true() -> None:
    program = cel.compile('device.attributes["d"].root == 1')
    assert program.matches(cel.Device(driver="d", attributes=(("root", 1),)))
    assert not program.matches(cel.Device(driver="d", attributes=(("root", True),)))
