"""What is built and how the cache is named."""

import dataclasses
import shutil

import pytest

from hack.cluster import build, errors, pin, requirements


def test_every_program_of_a_cluster_is_built():
    programs = {program for group in build.groups() for program in group.programs}
    assert programs == {
        "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet",
        "etcd", "containerd", "containerd-shim-runc-v2", "ctr", "nvidia-ctk", "nvidia-cdi-hook",
    }  # fmt: skip


def test_the_key_is_sixteen_hex_digits_and_the_same_each_time():
    key = build.key(build.groups())
    assert len(key) == 16
    assert int(key, 16) >= 0
    assert key == build.key(build.groups())


@pytest.mark.parametrize("name", ["go.mod", "go.sum", "tools.go"])
def test_the_key_follows_every_module_file(tmp_path, name):
    group = build.groups()[1]
    copy = dataclasses.replace(group, module=shutil.copytree(group.module, tmp_path / "module"))
    assert build.key((copy,)) == build.key((group,))
    with (copy.module / name).open("a") as file:
        file.write("\n")
    assert build.key((copy,)) != build.key((group,))


def test_the_key_follows_the_flags_and_the_use_of_c():
    group = build.groups()[1]
    others = [dataclasses.replace(group, flags=(*group.flags, "-race")), dataclasses.replace(group, cgo=True)]
    assert len({build.key((one,)) for one in (group, *others)}) == 3


def test_the_cache_stands_in_the_users_cache_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.directory().parent == tmp_path / "elastic-gpu"
    assert build.directory().name == f"bin-{build.key(build.groups())}"


def test_a_version_that_is_not_pinned_is_refused_with_those_that_are():
    with pytest.raises(errors.ClusterError, match=rf"v1\.2\.3 is not pinned.*{build.KUBERNETES}"):
        build.groups("v1.2.3")


def test_the_newest_patch_of_a_minor_version_is_meant_by_its_short_name():
    versions = build.pinned()
    assert versions[-1] == build.KUBERNETES
    assert [build.named(short) for short in ("1.34", "v1.35", "1.36", "v1.37.2")] == list(versions)
    assert len({build.directory(version) for version in versions}) == len(versions)


def test_a_short_name_of_no_version_is_refused():
    for text in ("1.3", "", "new"):
        with pytest.raises(errors.ClusterError, match="is not pinned"):
            build.named(text)


def test_a_pinned_module_replaces_what_upstream_takes_from_its_own_tree():
    upstream = "module k8s.io/kubernetes\n\ngo 1.25.0\n\ngodebug default=go1.25\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n)\n"
    assert pin.module_file("v1.36.3", upstream) == (
        "module elasticgpu.io/build/kubernetes\n\ngo 1.25.0\n\ngodebug default=go1.25\n\n"
        "require k8s.io/kubernetes v1.36.3\n\nreplace (\n\tk8s.io/api => k8s.io/api v0.36.3\n)\n"
    )


def test_the_newest_go_that_any_module_asks_for_is_needed():
    assert requirements.go_needed(["module a\n\ngo 1.26.0\n", "module b\n\ngo 1.26.6\n", "module c\n\ngo 1.9\n"]) == (
        1,
        26,
        6,
    )


def test_nothing_missing_makes_no_sentence():
    assert requirements.sentence([]) == ""


def test_what_is_missing_is_told_in_one_line_with_the_packages_that_bring_it():
    lacks = [
        requirements.Lack(what="root"),
        requirements.Lack(what="nsenter", packages=("util-linux",)),
        requirements.Lack(what="unshare", packages=("util-linux",)),
        requirements.Lack(what="gcc", packages=("gcc", "libc6-dev")),
    ]
    assert requirements.sentence(lacks) == (
        "missing: root, nsenter, unshare, gcc; packages: apt-get install -y --no-install-recommends util-linux gcc libc6-dev"
    )


def test_what_no_package_brings_is_told_without_a_command():
    assert requirements.sentence([requirements.Lack(what="root")]) == "missing: root"
