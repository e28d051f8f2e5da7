"""Answers the API server's questions.

    AdmissionReview --> review.read --> mutation or checks --> review.written --> AdmissionReview

Nothing is ever written from here, so a dry run is as good as the real thing.
"""

import time

import structlog

from api import errors
from webhook import checks, metrics, mutation, review, watcher

_log = structlog.get_logger("admitter")


class Admitter:
    """`mutate` gives pods by old names their claims, `validate` says what is wrong with an object."""

    def __init__(self, watch: watcher.Watcher, series: metrics.Metrics) -> None:
        self._watch = watch
        self._series = series

    async def mutate(self, data: bytes) -> bytes:
        started = time.monotonic()
        question = review.read(data)
        answer = review.Answer()
        if question.kind == "Pod" and question.operation == "CREATE":
            try:
                change = mutation.change(question.object, await self._watch.setting(question.namespace))
                answer = review.Answer(patch=change.patch, warnings=change.notes)
            except errors.Invalid as error:
                answer = review.Answer(refusal=f"old request for a card: {error}")
        return self._answered("mutate", question, answer, started)

    async def validate(self, data: bytes) -> bytes:
        started = time.monotonic()
        question = review.read(data)
        answer = review.Answer()
        if question.object:
            found = checks.finding(question.kind, question.object, self._watch.classes)
            answer = review.Answer(refusal=found.refusal, warnings=found.warnings)
        return self._answered("validate", question, answer, started)

    def _answered(self, path: str, question: review.Question, answer: review.Answer, started: float) -> bytes:
        outcome = "refused" if answer.refusal else "changed" if answer.patch else "unchanged"
        if answer.refusal:
            _log.info("refused", path=path, kind=question.kind, namespace=question.namespace, reason=answer.refusal)
        written = review.written(question, answer)
        self._series.answered(path, outcome, time.monotonic() - started)
        return written
