"""Image archives and what goes into the driver's image."""

import io
import json
import tarfile

from hack.cluster import archives, images, podimages


def members(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {member.name: opened.extractfile(member).read() for member in opened if member.isfile()}


def an_image() -> bytes:
    layer = archives.tar([archives.directory("bin"), archives.file("bin/x", b"#!", 0o755), archives.link("bin/y", "x")])
    return archives.image("registry.local/x:1", layer, ("/bin/x",), "x86_64")


def test_the_same_content_gives_the_same_archive():
    assert an_image() == an_image()


def test_every_blob_is_named_and_described_by_its_digest_and_size():
    found = members(an_image())
    index = json.loads(found["index.json"])
    manifest = json.loads(found[blob(index["manifests"][0], found)])
    layer, config = (found[blob(one, found)] for one in (manifest["layers"][0], manifest["config"]))
    assert members(layer) == {"bin/x": b"#!"}
    settings = json.loads(config)
    assert settings["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]
    assert (settings["architecture"], settings["config"]["Cmd"]) == ("amd64", ["/bin/x"])
    assert index["manifests"][0]["annotations"]["io.containerd.image.name"] == "registry.local/x:1"


def blob(described, found) -> str:
    name = f"blobs/{described['digest'].replace(':', '/')}"
    assert len(found[name]) == described["size"]
    return name


def test_pods_find_the_tools_that_tests_ask_for(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pause, busybox = podimages.both()
    assert (pause, busybox) == podimages.both()
    for archive in (pause, busybox):
        layer = max(members(archive.read_bytes()).values(), key=len)
        with tarfile.open(fileobj=io.BytesIO(layer)) as tree:
            names = set(tree.getnames())
        assert {f"bin/{tool}" for tool in ("sh", "ls", "cat", "env", "stat", "sleep", "grep", "find")} <= names


def test_the_image_is_made_of_what_the_project_packs_and_not_of_products(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.hatch.build.targets.wheel]\npackages = ["api"]\n')
    wanted = ["Dockerfile", "api/a.py", "api/protos/b.proto"]
    others = ["api/__pycache__/a.pyc", "api/fake/build/x.so", "tests/t.py", "notes"]
    for name in (*wanted, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert [str(path.relative_to(tmp_path)) for path in images.inputs(tmp_path)] == [*wanted, "pyproject.toml"]
