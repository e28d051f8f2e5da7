/* The file of limits and uses: whole lines of one length, each text, so that people can read it too. */
#define _GNU_SOURCE
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LENGTH = 512 };

/* The process whose lock lies on a line; -1 for none. */
static pid_t holder(int fd, int at)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)at * LENGTH, .l_len = LENGTH};
	if (fcntl(fd, F_GETLK, &lock) || lock.l_type == F_UNLCK)
		return -1;
	return lock.l_pid;
}

static struct line parsed(const char *text)
{
	struct line line = {0};
	if (sscanf(text, "limit %95s %llu %llu %319s", line.uuid, &line.soft, &line.hard, line.group) == 4)
		line.kind = LIMIT;
	else if (sscanf(text, "use %95s %llu %319s", line.uuid, &line.bytes, line.group) == 3)
		line.kind = USE;
	return line;
}

static void read_lines(struct memory *memory)
{
	char text[LENGTH + 1] = {0};
	memory->count = 0;
	while (memory->count < MAX_LINES && pread(memory->fd, text, LENGTH, (off_t)memory->count * LENGTH) == LENGTH) {
		struct line *line = &memory->line[memory->count];
		*line = parsed(text);
		if (line->kind == USE) {
			line->holder = memory->count == memory->mine ? getpid() : holder(memory->fd, memory->count);
			if (line->holder < 0)
				line->kind = FREE; /* its process is gone */
		}
		memory->count++;
	}
}

bool memory_open(struct memory *memory, const char *path, bool write)
{
	memory->count = 0;
	memory->mine = -1;
	memory->fd = open(path, (write ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC, 0666);
	if (memory->fd < 0)
		return !write && errno == ENOENT; /* nobody has set or used anything yet */
	if (write)
		fchmod(memory->fd, 0666); /* programs of any user allocate */
	flock(memory->fd, write ? LOCK_EX : LOCK_SH);
	read_lines(memory);
	return true;
}

void memory_close(struct memory *memory)
{
	if (memory->fd >= 0)
		close(memory->fd);
}

void memory_rest(const struct memory *memory)
{
	flock(memory->fd, LOCK_UN);
}

void memory_again(struct memory *memory)
{
	flock(memory->fd, LOCK_EX);
	read_lines(memory);
}

bool memory_keep(struct memory *memory, int at)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)at * LENGTH, .l_len = LENGTH};
	memory->mine = at;
	return !fcntl(memory->fd, F_SETLK, &lock);
}

int memory_put(struct memory *memory, int at, const struct line *line)
{
	char text[LENGTH + 1];
	int length = 0;
	for (int i = 0; at < 0 && i < memory->count; i++)
		if (memory->line[i].kind == FREE && holder(memory->fd, i) < 0)
			at = i;
	if (at < 0 && memory->count < MAX_LINES)
		at = memory->count++;
	if (at < 0)
		return -1;
	if (line->kind == LIMIT)
		length = snprintf(text, LENGTH, "limit %s %llu %llu %s", line->uuid, line->soft, line->hard, line->group);
	else if (line->kind == USE)
		length = snprintf(text, LENGTH, "use %s %llu %s", line->uuid, line->bytes, line->group);
	if (length >= LENGTH)
		return -1;
	memset(text + length, ' ', (size_t)(LENGTH - length));
	text[LENGTH - 1] = '\n';
	if (pwrite(memory->fd, text, LENGTH, (off_t)at * LENGTH) != LENGTH)
		return -1;
	memory->line[at] = *line;
	return at;
}

bool group_within(const char *group, const char *above)
{
	size_t length = strlen(above);
	if (!strcmp(above, "/"))
		return true;
	return !strncmp(group, above, length) && (!group[length] || group[length] == '/');
}

struct line *memory_limit(struct memory *memory, const char *uuid, const char *group)
{
	for (int i = 0; i < memory->count; i++)
		if (memory->line[i].kind == LIMIT && !strcmp(memory->line[i].uuid, uuid) &&
		    !strcmp(memory->line[i].group, group))
			return &memory->line[i];
	return NULL;
}

unsigned long long memory_used(const struct memory *memory, const char *uuid, const char *group)
{
	unsigned long long sum = 0;
	for (int i = 0; i < memory->count; i++)
		if (memory->line[i].kind == USE && !strcmp(memory->line[i].uuid, uuid) &&
		    group_within(memory->line[i].group, group))
			sum += memory->line[i].bytes;
	return sum;
}
