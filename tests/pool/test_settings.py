"""What the agent is told, and what it is not told twice."""

import pytest

from api import errors
from pool import profiles, settings

FEW = {"EGPU_PROFILES": "fake, ggml-rpc"}


def test_settings_come_from_their_variables() -> None:
    given = settings.read(FEW | {"EGPU_LISTEN": "[::1]:99", "EGPU_TTL_S": "60", "EGPU_NAMES": "a,b"}, "host-1")
    assert (given.pool_id, given.advertise) == ("host-1", "host-1")
    assert (given.profiles, given.names, given.door, given.ttl_s) == (("fake", "ggml-rpc"), ("a", "b"), ("::1", 99), 60)
    assert given.cluster is None


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("EGPU_LISTEN", "nowhere"),
        ("EGPU_TTL_S", "ten"),
        ("EGPU_TTL_S", "9999"),
        ("EGPU_LOOK_S", "0"),
        ("EGPU_REVIEW_URL", "http://plain"),
    ],
)
def test_a_setting_that_cannot_be_is_named(variable: str, text: str) -> None:
    with pytest.raises(errors.Invalid, match=variable):
        settings.read(FEW | {variable: text}, "host-1")


def test_a_pool_that_would_refuse_what_clusters_ask_for_does_not_start() -> None:
    with pytest.raises(errors.Invalid, match="EGPU_LONGEST_TTL_S must be 600 or more"):
        settings.read(FEW | {"EGPU_TTL_S": "60", "EGPU_LONGEST_TTL_S": "599"}, "host-1")
    assert settings.read(FEW | {"EGPU_TTL_S": "60", "EGPU_LONGEST_TTL_S": "600"}, "host-1").ttl_s == 60


def test_profiles_come_with_the_pool_and_a_file_adds_to_them(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "mine.yaml"
    file.write_text(
        'profiles: [{protocol: mine, command: [run, "{uuid}", "{port}"], port: 1, environment: {M: "{memory_mib}"}}]'
    )
    found = settings.offered(settings.read({"EGPU_PROFILES": "mine,fake", "EGPU_PROFILES_FILE": str(file)}, "h"))
    assert list(found) == ["mine", "fake"]
    facts = {"uuid": "GPU-a", "memory_mib": "5", "lease": "l", "here": "/h"}
    assert profiles.command(found["mine"], facts) == ("run", "GPU-a", "1")
    assert profiles.environment(found["mine"], facts) == {
        "M": "5",
        "CUDA_VISIBLE_DEVICES": "GPU-a",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def test_every_profile_that_comes_with_the_pool_can_be_filled_in() -> None:
    everything = settings.read({"EGPU_PROFILES": "fake,ggml-rpc,lupine,cricket"}, "h")
    for profile in settings.offered(everything).values():
        profiles.command(profile, {"uuid": "u", "memory_mib": "1", "lease": "l", "here": "/h"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("profiles: [{protocol: mine, port: 1}]", "command"),
        ("profiles: [{protocol: mine, command: [x], port: 1, host: y}]", "host"),
        ("{", "profiles of"),
    ],
)
def test_a_profile_that_cannot_be_is_refused(tmp_path, text: str, said: str) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(errors.Invalid, match=said):
        settings.offered(settings.read({"EGPU_PROFILES": "mine", "EGPU_PROFILES_FILE": str(file)}, "h"))
    with pytest.raises(errors.Invalid, match="no profile other"):
        settings.offered(settings.read({"EGPU_PROFILES": "other"}, "h"))
    with pytest.raises(errors.Invalid, match="EGPU_PROFILES is empty"):
        settings.offered(settings.read({}, "h"))
