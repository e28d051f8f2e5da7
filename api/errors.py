"""The error family: five classes, each there because a caller acts on it.

    ElasticGPUError
      Invalid       the user must change something; asking again does not help
      Conflict      somebody else holds it; the message names the holder
      NotReady      the same call will do later
      Unavailable   an outside thing did not answer, the outcome is unknown; repeat with the same key
      Corrupt       a record of ours cannot be read; it is set aside and costs one claim

A message says what, which (ids), why, and what to do. It holds no secret and no stack, and stays short
enough for a pod's event (1024 bytes in Kubernetes).
"""

MESSAGE_LIMIT = 900


class ElasticGPUError(Exception):
    """What all of ours have in common: one message, bounded."""

    def __init__(self, message: str) -> None:
        super().__init__(message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 3] + "...")


class Invalid(ElasticGPUError):
    """The request or an object is wrong; only its author can mend it."""


class Conflict(ElasticGPUError):
    """Somebody else holds what is asked for, or has changed it since we read it."""


class NotReady(ElasticGPUError):
    """Not possible now; the same call will do later."""


class Unavailable(ElasticGPUError):
    """An outside thing did not answer: whether it acted is unknown."""


class Corrupt(ElasticGPUError):
    """A record of ours is unreadable."""
