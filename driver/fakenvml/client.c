/* fake-cuda: a program that uses a card, as far as memory goes. It stands for libcuda and the kernel behind it.
 *
 *     fake-cuda UUID info               what cudaMemGetInfo would say
 *     fake-cuda UUID alloc MIB...       one allocation after the other; 2 when one is refused
 *     fake-cuda UUID hold MIB...        the same, and then stays with what it got until it is ended
 *
 * What it has allocated is gone when it is gone. Which group it is in, it reads from /proc, where no driver would trust
 * it; so it proves that a limit was set for the right group and adds up, not that nobody gets around it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"

static struct cards cards;
static struct memory memory;
static char cards_path[PATH_MAX - 32], memory_path[PATH_MAX];

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "fake-cuda: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void find_files(void)
{
	const char *named = getenv("FAKE_NVML_CARDS");
	char why[256];
	ssize_t length;
	int fd;
	if (named) {
		snprintf(cards_path, sizeof cards_path, "%s", named);
	} else {
		length = readlink("/proc/self/exe", cards_path, sizeof cards_path - 1);
		if (length < 0)
			fail("/proc/self/exe");
		cards_path[length] = 0;
		*strrchr(cards_path, '/') = 0;
		strcat(cards_path, "/fake-nvml.cards");
	}
	if ((fd = open(cards_path, O_RDONLY)) < 0)
		fail(cards_path);
	if (!cards_read(fd, &cards, why)) {
		fprintf(stderr, "fake-cuda: %s: %s\n", cards_path, why);
		exit(1);
	}
	close(fd);
	if (*cards.memory_file)
		snprintf(memory_path, sizeof memory_path, "%s", cards.memory_file);
	else
		snprintf(memory_path, sizeof memory_path, "%s.memory", cards_path);
}

static void find_group(char group[GROUP_SIZE])
{
	char text[4096];
	const char *named = getenv("FAKE_CUDA_GROUP");
	FILE *file = named ? NULL : fopen("/proc/self/cgroup", "r");
	snprintf(group, GROUP_SIZE, "%s", named ? named : "/");
	while (file && fgets(text, sizeof text, file))
		if (!strncmp(text, "0::", 3))
			snprintf(group, GROUP_SIZE, "%.*s", (int)strcspn(text + 3, "\n"), text + 3);
	if (file)
		fclose(file);
}

/* What is left of the card for this group, by the tightest limit on it and above it, and how much is there at all. */
static unsigned long long left(const struct card *card, const char *group, unsigned long long *total)
{
	unsigned long long all = memory_used(&memory, card->uuid, "/") + card->used, room;
	for (size_t i = 0; i < card->process_count; i++)
		all += card->processes[i].used_memory;
	room = all < card->memory ? card->memory - all : 0;
	*total = card->memory;
	for (int i = 0; i < memory.count; i++) {
		const struct line *line = &memory.line[i];
		unsigned long long used;
		if (line->kind != LIMIT || strcmp(line->uuid, card->uuid) || !group_within(group, line->group) ||
		    line->hard >= card->memory)
			continue;
		used = memory_used(&memory, card->uuid, line->group);
		if (room > (used < line->hard ? line->hard - used : 0))
			room = used < line->hard ? line->hard - used : 0;
		if (!strcmp(line->group, group))
			*total = line->hard; /* only the limit of the very group shows as the total */
	}
	return room;
}

/* One allocation: the line grows, if there is room. Called with the file locked and freshly read. */
static bool allocate(const struct card *card, struct line *own, unsigned long long bytes)
{
	unsigned long long total, room = left(card, own->group, &total);
	int at = memory.mine;
	if (bytes > room) {
		printf("out of memory: %llu MiB asked, %llu of %llu MiB free\n", bytes >> 20, room >> 20, total >> 20);
		return false;
	}
	own->bytes += bytes;
	at = memory_put(&memory, at, own);
	if (at < 0 || (memory.mine < 0 && !memory_keep(&memory, at)))
		fail(memory_path);
	printf("allocated %llu MiB\n", bytes >> 20);
	return true;
}

int main(int argc, char **argv)
{
	struct line own = {.kind = USE};
	struct card *card = NULL;
	unsigned long long total, room;
	bool well = true;
	if (argc < 3) {
		fprintf(stderr, "fake-cuda UUID info | alloc MIB... | hold MIB...\n");
		return 1;
	}
	find_files();
	find_group(own.group);
	for (size_t i = 0; i < cards.count; i++)
		if (!strcasecmp(cards.card[i].uuid, argv[1]))
			card = &cards.card[i];
	if (!card) {
		fprintf(stderr, "fake-cuda: there is no card %s\n", argv[1]);
		return 1;
	}
	snprintf(own.uuid, sizeof own.uuid, "%s", card->uuid);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!memory_open(&memory, memory_path, true))
		fail(memory_path);
	if (!strcmp(argv[2], "info")) {
		room = left(card, own.group, &total);
		printf("free %llu MiB, total %llu MiB\n", room >> 20, total >> 20);
		return 0;
	}
	for (int i = 3; i < argc; i++) {
		well = allocate(card, &own, strtoull(argv[i], NULL, 10) << 20) && well;
		memory_rest(&memory);
		memory_again(&memory);
	}
	memory_rest(&memory);
	if (!strcmp(argv[2], "hold"))
		pause();
	return well ? 0 : 2;
}
