"""What was measured against what was promised: the table of `make bench`, and the same as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass

_HEAD = ("figure", "ours", "reference", "ratio", "bound", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One promise. `at_most` and `at_least` bound the ratio to the reference where `relative`, else our own value."""

    name: str
    unit: str
    ours: float
    reference: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    relative: bool = False

    @property
    def ratio(self) -> float | None:
        return self.ours / self.reference if self.reference else None

    @property
    def kept(self) -> bool | None:
        """None where nothing was promised or there is nothing to compare with."""
        value = self.ratio if self.relative else self.ours
        if value is None or (self.at_most is None and self.at_least is None):
            return None
        return (self.at_most is None or value <= self.at_most) and (self.at_least is None or value >= self.at_least)

    def row(self) -> tuple[str, ...]:
        sign, bound = ("<=", self.at_most) if self.at_most is not None else (">=", self.at_least)
        promised = "" if bound is None else f"{sign} {bound:g}{' x' if self.relative else ''}"
        verdict = {True: "ok", False: "OVER", None: ""}[self.kept]
        return (
            f"{self.name}, {self.unit}",
            _number(self.ours),
            _number(self.reference),
            _number(self.ratio),
            promised,
            verdict,
        )

    def json(self) -> dict[str, object]:
        fields = ("name", "unit", "ours", "reference", "ratio", "at_most", "at_least", "relative", "kept")
        return {name: getattr(self, name) for name in fields}


def table(measured: Sequence[Figure]) -> str:
    """Columns for a terminal."""
    rows = [_HEAD, *(figure.row() for figure in measured)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}"
