"""Random CEL texts, mostly well typed, and devices for them to be judged on.

None makes a list of the keys of a map: upstream's order of them differs from run to run.
"""

from typing import Any

from hypothesis import strategies as st

DRIVER = "gpu.elasticgpu.io"
OWN, OTHER = f'device.attributes["{DRIVER}"]', 'device.attributes["resource.kubernetes.io"]'
SIZES = f'device.capacity["{DRIVER}"]'
WORDS = ("", "a", "b", "NVIDIA L40S", "nvidia", "ä😀", "1.2.3", "10.0.0.1", "1Gi", "a,b,c", "2h", "x" * 40)
PATTERNS = ("a", "^a.*b$", "[a-z]+", "(a|b)*c?", "\\\\d{2,3}", "(?i)NV", "", ".", "(a+)+b", "[[:upper:]]")


def _quoted(word: str) -> str:
    return f'"{word}"'


@st.composite
def devices(draw: st.DrawFn) -> dict[str, Any]:
    """As the API writes them."""
    value = st.one_of(
        st.builds(lambda text: {"string": text}, st.sampled_from([*WORDS])),
        st.builds(lambda number: {"int": number}, st.sampled_from([0, 1, -1, 7, 2**40])),
        st.builds(lambda flag: {"bool": flag}, st.booleans()),
        st.builds(lambda text: {"version": text}, st.sampled_from(["1.2.3", "580.95.5", "1.0.0-rc.1", "0.0.1+b"])),
    )
    names = ("s", "n", "flag", "version", "resource.kubernetes.io/numaNode", f"{DRIVER}/domain")
    amounts = ("1Gi", "48Gi", "100", "250m", "1500Mi", "0", "100Ti")
    return {
        "driver": draw(st.sampled_from([DRIVER, "other.example.com"])),
        "shared": draw(st.booleans()),
        "attributes": draw(st.dictionaries(st.sampled_from(names), value, max_size=6)),
        "capacity": {
            name: {"value": amount}
            for name, amount in draw(
                st.dictionaries(st.sampled_from(["memory", "cores"]), st.sampled_from(amounts), max_size=2)
            ).items()
        },
    }


class _Writer:
    """Writes a text of a wanted type. `names`: variables in scope, by type."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._count = 0

    def text(self, kind: str, depth: int, names: dict[str, str]) -> str:
        if self._draw(st.integers(0, 40)) == 0:
            kind = self._draw(st.sampled_from(sorted(FORMS)))
        known = [name for name, of in names.items() if of == kind]
        forms = FORMS[kind] if depth > 0 else LEAVES[kind]
        if known and self._draw(st.integers(0, 2)) == 0:
            return self._draw(st.sampled_from(known))
        return self._filled(self._draw(st.sampled_from(forms)), depth - 1, names)

    def _filled(self, form: str, depth: int, names: dict[str, str]) -> str:
        """`<int>` becomes a text of that type; `$int:` before it declares the variable `$` for what follows."""
        made, rest, own = "", form, dict(names)
        while rest:
            head, mark, rest = rest.partition("<")
            made += head
            if not mark:
                break
            kind, _, rest = rest.partition(">")
            if kind.startswith("$"):
                self._count += 1
                own = own | {f"v{self._count}": kind[1:]}
                made += f"v{self._count}"
            elif kind == "word":
                made += _quoted(self._draw(st.sampled_from(WORDS)))
            elif kind == "pattern":
                made += _quoted(self._draw(st.sampled_from(PATTERNS)))
            else:
                made += self.text(kind, depth, own)
        return made.replace("«", "<").replace("»", ">")


LEAVES: dict[str, list[str]] = {
    "bool": ["true", "false", "device.allowMultipleAllocations", f"{OWN}.flag", f'"s" in {OWN}', f"has({OWN}.n)"],
    "int": ["0", "1", "-1", "7", "9223372036854775807", "-9223372036854775808", "<list>.size()"],
    "uint": ["0u", "1u", "18446744073709551615u"],
    "double": ["0.0", "1.5", "-2.0", "1e300"],
    "string": ["<word>", "<word>", "device.driver"],
    "bytes": ['b"a"', 'b"\\xff"'],
    "list": ["[]", "[1, 2, 3]", "[0, -1]", "lists.range(3)"],
    "words": ['["a", "b"]', "[<word>, device.driver]"],
    "map": ['{"a": 1}', "{}", '{"a": 1, "b": 2}'],
    "quantity": ['quantity("1Gi")', f"{SIZES}.memory", f"{SIZES}.cores", 'quantity("250m")'],
    "semver": ['semver("1.2.3")', 'semver("1.0.0-rc.1")', 'semver("v1.2", true)'],
    "dyn": [f"{OWN}.s", f"{OWN}.n", f"{OWN}.version", f"{OTHER}.numaNode", f"{OWN}.domain", f"{OWN}[<word>]"],
    "optional": ["optional.of(1)", "optional.none()"],
    "span": ['duration("1h")', 'duration("-1.5s")'],
    "moment": ['timestamp("2026-01-02T03:04:05Z")', "timestamp(0)"],
}
FORMS: dict[str, list[str]] = {
    "bool": [
        *LEAVES["bool"],
        *("<bool> && <bool>", "<bool> || <bool>", "!<bool>", "(<bool> ? <bool> : <bool>)", "(<bool>) == (<bool>)"),
        *("<int> == <int>", "<int> « <int>", "<int> »= <double>", "<uint> != <uint>", "<double> « <double>"),
        *("<string> == <string>", "<string> « <string>", "<dyn> == <dyn>", "<dyn> == <string>", "<dyn> == <int>"),
        *("<dyn> » 1", '<dyn> »= "a"', "<dyn>", "<dyn> && <bool>", "<bool> || <dyn>", "<dyn> in [1, 7]"),
        *("<string>.contains(<string>)", "<string>.startsWith(<string>)", "<string>.endsWith(<string>)"),
        *("<string>.matches(<pattern>)", "<dyn>.matches(<pattern>)", "<dyn>.contains(<word>)", "<string> in <words>"),
        *("<int> in <list>", "<string> in <map>", "<list> == <list>", "<map> == <map>", "<words> != <words>"),
        *("<list>.exists(<$int>, <bool>)", "<list>.all(<$int>, <bool>)", "<list>.exists_one(<$int>, <bool>)"),
        *(
            "<words>.exists(<$string>, <bool>)",
            "<map>.all(<$string>, <bool>)",
            "<map>.exists(<$string>, <$int>, <bool>)",
        ),
        f"{OWN}.exists(<$string>, <bool>)",
        *("<quantity>.isGreaterThan(<quantity>)", "<quantity>.isLessThan(<quantity>)", "<quantity> == <quantity>"),
        *("<quantity>.isInteger()", "<semver>.isGreaterThan(<semver>)", "<semver> == <semver>", "<dyn> == <semver>"),
        *(
            "<dyn>.isLessThan(<semver>)",
            "<dyn>.isGreaterThan(<quantity>)",
            "isQuantity(<string>)",
            "isSemver(<string>)",
        ),
        *("<optional>.hasValue()", "<optional> == <optional>", f"{OWN}.?s.hasValue()", "<list>.isSorted()"),
        *("sets.contains(<list>, <list>)", "sets.intersects(<words>, <words>)", "sets.equivalent(<list>, <list>)"),
        *("isIP(<string>)", "isCIDR(<string>)", "isURL(<string>)", "<span> « <span>", "<moment> == <moment>"),
        *(
            "cel.bind(<$int>, <int>, <bool>)",
            "cel.bind(<$string>, <string>, <bool>)",
            "cel.bind(<$list>, <list>, <bool>)",
        ),
        *("format.dns1123Label().validate(<string>).hasValue()", "bool(<string>)", "type(<dyn>) == string"),
        f'cel.bind(d, {OWN}, d.?n.orValue(0) == <int> && ("s" in d || <bool>))',
        f"{OWN}.?s.optMap(s, s.matches(<pattern>)).orValue(<bool>)",
        *("<bytes> == <bytes>", "<bytes> « <bytes>", "<list>[<int>] == <int>", "<map>[<string>] == <int>"),
    ],
    "int": [
        *LEAVES["int"],
        *("<int> + <int>", "<int> - <int>", "<int> * <int>", "<int> / <int>", "<int> % <int>", "(-<int>)"),
        *("<string>.size()", "size(<list>)", "size(<map>)", "<list>[<int>]", "<map>[<string>]", "<list>.sum()"),
        *(
            "<list>.max()",
            "<list>.min()",
            "int(<string>)",
            "int(<double>)",
            "int(<uint>)",
            "<string>.indexOf(<string>)",
        ),
        *(
            "<string>.lastIndexOf(<string>)",
            "<list>.indexOf(<int>)",
            "<quantity>.compareTo(<quantity>)",
            "<semver>.major()",
        ),
        *(
            "sign(<quantity>)",
            "<quantity>.asInteger()",
            "<optional>.orValue(<int>)",
            "<optional>.value()",
            "<span>.getSeconds()",
        ),
        *(
            "<moment>.getHours()",
            "<moment>.getFullYear()",
            "(<bool> ? <int> : <int>)",
            "<bytes>.size()",
            "<list>.first().value()",
        ),
        f"{OWN}.?n.orValue(<int>)",
    ],
    "uint": [*LEAVES["uint"], "<uint> + <uint>", "<uint> - <uint>", "uint(<int>)", "<uint> / <uint>"],
    "double": [*LEAVES["double"], "<double> + <double>", "<double> * <double>", "<double> / <double>", "double(<int>)"],
    "string": [
        *LEAVES["string"],
        *(
            "<string> + <string>",
            "<string>.lowerAscii()",
            "<string>.upperAscii()",
            "<string>.trim()",
            "<words>.join(<word>)",
        ),
        *("<string>.replace(<string>, <string>)", "<string>.substring(<int>)", "<string>.substring(<int>, <int>)"),
        *(
            "<string>.charAt(<int>)",
            "string(<int>)",
            "string(<double>)",
            "string(<bool>)",
            "string(<uint>)",
            "string(<bytes>)",
        ),
        *("<string>.find(<pattern>)", "strings.quote(<string>)", "<words>[<int>]", "(<bool> ? <string> : <string>)"),
        *(
            '"%s %d".format([<string>, <int>])',
            '"%s".format([<list>])',
            "<words>.max()",
            "string(<span>)",
            "string(<moment>)",
        ),
        f'{OWN}.?s.orValue("none")',
    ],
    "bytes": [*LEAVES["bytes"], "bytes(<string>)", "<bytes> + <bytes>"],
    "list": [
        *LEAVES["list"],
        *(
            "<list> + <list>",
            "[<int>, <int>]",
            "<list>.map(<$int>, <int>)",
            "<list>.filter(<$int>, <bool>)",
            "<list>.sort()",
        ),
        *("<list>.map(<$int>, <bool>, <int>)", "<list>.reverse()", "<list>.distinct()", "<list>.slice(<int>, <int>)"),
        *(
            "<words>.map(<$string>, <int>)",
            "<list>.sortBy(<$int>, <int>)",
            "[<list>, <list>].flatten()",
            "[?<optional>, 5]",
        ),
        *("<list>.transformList(<$int>, <$int>, <int>)", "(<bool> ? <list> : <list>)"),
    ],
    "words": [
        *LEAVES["words"],
        *("<string>.split(<word>)", "<words> + <words>", "<words>.filter(<$string>, <bool>)", "<words>.sort()"),
        *(
            "<words>.map(<$string>, <string>)",
            "<string>.findAll(<pattern>)",
            "<words>.distinct()",
        ),
    ],
    "map": [*LEAVES["map"], "{<word>: <int>}", "<map>.transformMap(<$string>, <$int>, <int>)", "{?<word>: <optional>}"],
    "quantity": [*LEAVES["quantity"], "<quantity>.add(<quantity>)", "<quantity>.sub(<int>)", "quantity(<string>)"],
    "semver": [*LEAVES["semver"], "semver(<string>)"],
    "dyn": [*LEAVES["dyn"], "dyn(<int>)", "dyn(<string>)", "dyn(<list>)", f"{OWN}[<string>]"],
    "optional": [
        *LEAVES["optional"],
        *("optional.of(<int>)", "<optional>.or(<optional>)", "<map>[?<string>]", "<list>[?<int>]", "<list>.last()"),
        *(
            "<optional>.optMap(<$int>, <int>)",
            "optional.ofNonZeroValue(<int>)",
            "<optional>.optFlatMap(<$int>, <optional>)",
        ),
    ],
    "span": [*LEAVES["span"], "duration(<string>)", "<span> + <span>", "<moment> - <moment>"],
    "moment": [*LEAVES["moment"], "<moment> + <span>"],
}


@st.composite
def texts(draw: st.DrawFn) -> str:
    found = _Writer(draw).text("bool", draw(st.integers(1, 4)), {})
    if draw(st.integers(0, 9)) == 0 and found:  # a slip of the finger
        at = draw(st.integers(0, len(found) - 1))
        found = found[:at] + draw(st.sampled_from(["", "(", '"', ".", "?", "&", "x", "1", "\\", "]"])) + found[at + 1 :]
    return found
