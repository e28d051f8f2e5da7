"""Explanations and fits as text for people: the verdict first, a sentence that can be passed on."""

from collections.abc import Iterator

from api.reasons import Verdict
from explain import explanation, fitting, funnel

_GROUPS = 6


def of_explanation(told: explanation.Explanation) -> str:
    return "\n".join(_lines(told)) + "\n"


def of_fit(told: fitting.Fit) -> str:
    lines = [told.sentence]
    if told.first:
        lines += ["", "First:"] + [f"  {landing.node}: {', '.join(landing.cards)}" for landing in told.first]
    if len(told.nodes) > 1:
        shown = ", ".join(f"{node} {count}" for node, count in told.nodes[:10])
        lines += ["", f"By node: {shown}" + (f" and {len(told.nodes) - 10} more" if len(told.nodes) > 10 else "")]  # noqa: PLR2004
    if told.next is not None:
        if told.first:
            lines += ["", f"One more: {told.next.sentence}"]
        lines += list(_lines(told.next))[1:]
    elif told.notes:
        lines += ["", *told.notes[:1]]
    return "\n".join(lines) + "\n"


def _lines(told: explanation.Explanation) -> Iterator[str]:
    yield told.sentence
    if told.reason:
        yield f"Reason: {told.reason}"
    if told.links:
        yield ""
        yield "Chain:"
        for link in told.links:
            mark = "!" if link.missing else "-"
            yield f"  {mark} {link.kind} {link.name}" + (f": {link.note}" if link.note else "")
    for one in told.funnels:
        yield from _funnel(one)
    if told.changes:
        yield ""
        yield "What would change it:"
        yield from (f"  - {change}" for change in told.changes)
    if told.evidence:
        yield ""
        yield f"The scheduler says: {told.evidence}"
    if told.verdict is not Verdict.SETTLED and told.notes:
        yield ""
        yield from told.notes


def _funnel(one: funnel.Funnel) -> Iterator[str]:
    yield ""
    wanted = "all cards" if one.every else f"{one.count} card{'s' if one.count != 1 else ''}"
    yield f"Request {one.request}, {wanted} of class {one.class_name}: {one.seen} cards seen"
    for group in one.groups[:_GROUPS]:
        yield f"  {group.text}"
        for example in group.examples:
            if example.card and example.where not in group.text:
                yield f"      {example.where}"
    if len(one.groups) > _GROUPS:
        yield f"  and {len(one.groups) - _GROUPS} more reasons"
    if one.candidates:
        total = sum(one.candidates.values())
        yield f"  {total} card{'s' if total != 1 else ''} would do, on {len(one.candidates)} node(s)"
