"""What is told of a run of the tests on several versions."""

from hack import skew

REPORT = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"><failure message="no"/></testcase><testcase name="c"><error message="no"/></testcase>
<testcase name="d"><skipped message="Kubernetes v1.34.4 has DRADeviceTaints off"/></testcase>
<testcase name="e"><skipped message="Kubernetes v1.34.4 has DRADeviceTaints off"/></testcase>
</testsuite></testsuites>"""


def test_what_a_version_has_not_is_counted_by_the_feature():
    assert skew.summary(REPORT) == "1 passed, 2 failed; 2 skipped: DRADeviceTaints off"


def test_every_file_of_the_suite_is_there():
    assert [name for name in skew.SUITE if not (skew.ROOT / f"tests/e2e/{name}.py").is_file()] == []
