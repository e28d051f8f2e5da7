/* What a kernel would know of the memory of cards: who was limited to what, and what is allocated. README.md has the file.
 *
 * One file of fixed lines, so that a line can be locked: what a process allocates lies in a line that it locks, and is
 * gone with the process, whatever it died of. Whoever asks for the lock's owner gets its pid as his own namespace has it. */
#ifndef FAKENVML_MEMORY_H
#define FAKENVML_MEMORY_H

#include <sys/types.h>

#include "cards.h"

enum { MAX_LINES = 1024, GROUP_SIZE = 320 };

struct line {
	enum { FREE, LIMIT, USE } kind;
	char uuid[UUID_SIZE], group[GROUP_SIZE]; /* the group as /proc/<pid>/cgroup has it */
	unsigned long long soft, hard, bytes;
	pid_t holder; /* of a USE: 0 is a process of another pid namespace */
};

struct memory {
	int fd, count, mine; /* mine: the line that this process keeps locked, -1 for none */
	struct line line[MAX_LINES];
};

/* Opens the file, keeps other writers out, and reads. False if it cannot be had; errno says why. */
bool memory_open(struct memory *memory, const char *path, bool write);
void memory_close(struct memory *memory);

/* For a process that keeps a line: it must never close the file, which would let go of its lock. */
void memory_rest(const struct memory *memory);
void memory_again(struct memory *memory);
bool memory_keep(struct memory *memory, int at);

/* Puts a line into the file, into `at` or a free place. The place; -1 if there is none. */
int memory_put(struct memory *memory, int at, const struct line *line);

/* The limit that was set for this very group, or NULL. */
struct line *memory_limit(struct memory *memory, const char *uuid, const char *group);

/* What the processes of a group and of those below it have of a card. */
unsigned long long memory_used(const struct memory *memory, const char *uuid, const char *group);

/* Whether `group` is `above` or lies below it. */
bool group_within(const char *group, const char *above);

#endif
