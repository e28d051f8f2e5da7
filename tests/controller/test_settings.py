"""The environment -> Settings, or the variable's name in the refusal."""

import socket
from dataclasses import fields

import pytest

from api import errors
from controller import settings


def test_an_empty_environment_has_a_default_for_everything() -> None:
    expected = settings.Settings(namespace="default", pod_name=socket.gethostname(), port=8080, log_level="info")
    assert settings.read({}) == settings.read({"EGPU_PORT": "", "EGPU_NAMESPACE": ""}) == expected


def test_what_is_given_is_taken() -> None:
    given = {"EGPU_NAMESPACE": "gpu", "EGPU_POD_NAME": "c-1", "EGPU_PORT": "0", "EGPU_LOG_LEVEL": "debug"}
    assert settings.read(given) == settings.Settings(namespace="gpu", pod_name="c-1", port=0, log_level="debug")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("EGPU_PORT", "http", "EGPU_PORT is 'http'; it must be a port number from 0 to 65535"),
        ("EGPU_PORT", "65536", "EGPU_PORT is '65536'; it must be a port number from 0 to 65535"),
        ("EGPU_PAGE_PORT", "-1", "EGPU_PAGE_PORT is '-1'; it must be a port number from 0 to 65535"),
        ("EGPU_PAGE", "open", "EGPU_PAGE is 'open'; known: none, local, tls, plain"),
        ("EGPU_PAGE", "tls", 'EGPU_PAGE is "tls", and EGPU_PAGE_TLS names no directory with tls.crt and tls.key'),
    ],
)
def test_a_bad_value_is_refused_by_the_variables_name(name: str, value: str, text: str) -> None:
    with pytest.raises(errors.Invalid) as caught:
        settings.read({name: value})
    assert str(caught.value) == text


def test_the_manual_tells_of_every_setting() -> None:
    for field in fields(settings.Settings):
        assert f"EGPU_{field.name.upper()}\n" in settings.manual()


def test_remote_cards_are_asked_for_as_given() -> None:
    given = {
        "REMOTE": "True",
        "REMOTE_CREDENTIALS": "/c",
        "REMOTE_NODES": "a=b,c=",
        "REMOTE_BINDING_S": "30",
        "REMOTE_DRIVERS": "c=d",
    }
    found = settings.read({f"EGPU_{name}": value for name, value in given.items()} | {"EGPU_REMOTE_FRESH_S": "9"})
    assert (found.remote, found.remote_credentials, found.remote_nodes) == (True, "/c", "a=b,c=")
    assert found.remote_drivers == "c=d"
    assert (found.remote_binding_s, found.remote_fresh_s) == (30, 9)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REMOTE", "yes"),
        ("REMOTE_BINDING_S", "0"),
        ("REMOTE_FRESH_S", "1m"),
        ("REMOTE_NODES", "=b"),
        ("REMOTE_DRIVERS", "=b"),
        ("REMOTE_DRIVERS", "component"),
        ("REMOTE_NODES", "a=b,c"),
    ],
)
def test_a_bad_value_for_remote_cards_is_refused(name: str, value: str) -> None:
    with pytest.raises(errors.Invalid, match=f"EGPU_{name}"):
        settings.read({f"EGPU_{name}": value})
