"""The account file of HAMi-core, read by a program that has the library's structure: a C compiler lays it out."""

import subprocess
from pathlib import Path

import pytest

from driver import hamiregion

READER = r"""
#include <fcntl.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
struct slot {
	int32_t pid, host_pid;
	struct { uint64_t sizes[8]; } used[16];
	uint64_t monitored[16];
	struct { uint64_t rates[6]; } rates[16];
	int32_t status;
	uint64_t sequence, rest[2];
};
struct region {
	int32_t magic;
	uint32_t major, minor;
	int32_t cores_scaled;
	size_t owner;
	sem_t lock;
	uint64_t cards;
	char uuids[16][96];
	uint64_t limit[16], cores[16];
	struct slot slots[1024];
	int used_slots, rate_switch, recent_kernel, priority;
	uint64_t last_kernel;
	sem_t second;
};
int main(int argc, char **argv)
{
	struct stat found;
	int fd = open(argv[argc - 1], O_RDWR);
	struct region *r = mmap(0, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fstat(fd, &found);
	int first = sem_trywait(&r->lock), again = sem_trywait(&r->lock), second = sem_trywait(&r->second);
	int beyond = (int)(found.st_size - (off_t)sizeof *r);
	printf("%d %u.%u size %d locks %d %d again %d\n", r->magic, r->major, r->minor, beyond, first, second, again);
	printf("%lu %lu %lu %lu\n", r->limit[0], r->limit[1], r->cores[0], r->cores[1]);
	printf("%d %d %d %d %lu\n", r->used_slots, r->rate_switch, r->recent_kernel, r->priority, r->cards);
}
"""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("reader")
    (directory / "reader.c").write_text(READER)
    subprocess.run(["gcc", "-o", directory / "reader", directory / "reader.c"], check=True)
    return directory / "reader"


@pytest.mark.parametrize(("cores", "told"), [(30, 30), (0, 100), (100, 100)])
def test_the_file_is_what_the_library_would_have_begun(reader: Path, tmp_path: Path, cores: int, told: int) -> None:
    """HAMi#2125: its limits stand there before any process is."""
    file = tmp_path / "share.cache"
    file.write_bytes(hamiregion.begun(hamiregion.Layout.V1_2, memory_bytes=8192 * 2**20, cores=cores))
    lines = subprocess.run([reader, file], capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines == [
        "19920718 1.2 size 1 locks 0 0 again -1",
        f"{8192 * 2**20} 0 {told} 100",
        "0 1 2 1 0",
    ]
