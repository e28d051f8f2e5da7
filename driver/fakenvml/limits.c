/* Memory limits of control groups, which the driver has from r615 on: set, told, and held (by client.c, which allocates). */
#define _GNU_SOURCE
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "door.h"
#include "memory.h"

enum { FIRST_BRANCH = 615 };

/* The directory where the file system of `path` is mounted. */
static void mounted(const char *path, dev_t device, char root[PATH_MAX])
{
	char above[PATH_MAX];
	struct stat there;
	strcpy(root, path);
	while (root[1]) {
		size_t length = (size_t)(strrchr(root, '/') - root);
		snprintf(above, sizeof above, "%.*s", (int)(length ? length : 1), root);
		if (stat(above, &there) || there.st_dev != device)
			return;
		strcpy(root, above);
	}
}

/* The group behind a path as /proc has it, and the root of its file system; false where that is no directory of groups. */
static bool group_of(const struct cards *cards, const char *path, char group[PATH_MAX], char root[PATH_MAX])
{
	struct stat here;
	struct statfs kind;
	char real[PATH_MAX];
	if (!path || !realpath(path, real) || stat(real, &here) || !S_ISDIR(here.st_mode))
		return false;
	if (!*cards->groups) {
		if (statfs(real, &kind) || kind.f_type != CGROUP2_SUPER_MAGIC)
			return false;
		mounted(real, here.st_dev, root);
	} else if (!realpath(cards->groups, root) || !group_within(real, root)) {
		return false;
	}
	snprintf(group, PATH_MAX, "%s", real[strlen(root)] ? real + strlen(root) : "/");
	return strlen(group) < GROUP_SIZE && !strpbrk(group, " \t\n");
}

static result_t opened(const char *path, char group[PATH_MAX], char root[PATH_MAX], struct cards *cards)
{
	result_t result = door_cards(cards);
	if (result)
		return result;
	if (atoi(cards->driver) < FIRST_BRANCH)
		return FUNCTION_NOT_FOUND;
	return group_of(cards, path, group, root) ? OK : OPERATING_SYSTEM;
}

/* A limit goes with its group. */
static void sweep(struct memory *memory, const char *root)
{
	char path[PATH_MAX + GROUP_SIZE];
	for (int i = 0; i < memory->count; i++) {
		snprintf(path, sizeof path, "%s%s", root, memory->line[i].group);
		if (memory->line[i].kind == LIMIT && access(path, F_OK))
			memory_put(memory, i, &(struct line){.kind = FREE});
	}
}

EXPORT result_t nvmlDeviceSetMemoryLimits_v1(device_t device, set_limits_t *limits)
{
	char group[PATH_MAX], root[PATH_MAX], file[PATH_MAX];
	static struct memory memory;
	struct cards cards;
	OPEN(device);
	if (!limits)
		return INVALID_ARGUMENT;
	result_t result = opened(limits->group, group, root, &cards);
	if (result)
		return result;
	if (!*cards.groups && geteuid())
		return NO_PERMISSION;
	if (limits->soft > limits->hard || (limits->hard > card.memory && limits->hard != NO_LIMIT))
		return INVALID_ARGUMENT;
	door_memory_path(file, sizeof file);
	door_lock();
	if (!memory_open(&memory, file, true)) {
		result = OPERATING_SYSTEM;
	} else {
		struct line *known, fresh = {.kind = LIMIT, .soft = limits->soft, .hard = limits->hard};
		sweep(&memory, root);
		known = memory_limit(&memory, card.uuid, group);
		strcpy(fresh.uuid, card.uuid);
		strcpy(fresh.group, group);
		if (!limits->soft && limits->hard == NO_LIMIT)
			fresh = (struct line){.kind = FREE};
		if ((known || fresh.kind) && memory_put(&memory, known ? (int)(known - memory.line) : -1, &fresh) < 0)
			result = MEMORY;
	}
	memory_close(&memory);
	door_unlock();
	return result;
}

EXPORT result_t nvmlDeviceGetMemoryLimits_v1(device_t device, get_limits_t *limits)
{
	char group[PATH_MAX], root[PATH_MAX], file[PATH_MAX];
	static struct memory memory;
	struct cards cards;
	OPEN(device);
	if (!limits)
		return INVALID_ARGUMENT;
	result_t result = opened(limits->group, group, root, &cards);
	if (result)
		return result;
	door_memory_path(file, sizeof file);
	door_lock();
	if (!memory_open(&memory, file, false)) {
		result = OPERATING_SYSTEM;
	} else {
		struct line *known = memory_limit(&memory, card.uuid, group);
		result = known ? OK : NOT_FOUND;
		if (known) {
			limits->soft = known->soft;
			limits->hard = known->hard;
			limits->used = memory_used(&memory, card.uuid, group);
		}
	}
	memory_close(&memory);
	door_unlock();
	return result;
}
