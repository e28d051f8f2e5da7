/* Events: lines that someone appends to the file beside the cards file, each told once to every set that is there then.
 *
 * A set starts at the end the file has when it is made, and goes on only over whole lines. A card of the set that is lost
 * makes the wait fail at once and again each time, as the real one does. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "door.h"

struct event_set {
	off_t read;
	device_t devices[MAX_CARDS];
	size_t count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the sets' contents */

static int open_events(struct stat *now)
{
	char path[PATH_MAX + 8];
	door_events_path(path, sizeof path);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, now)) {
		close(fd);
		return -1;
	}
	return fd;
}

EXPORT result_t nvmlEventSetCreate(event_set_t *set)
{
	struct cards cards;
	struct stat now;
	result_t result = door_cards(&cards);
	if (result)
		return result;
	if (!set || !(*set = calloc(1, sizeof **set)))
		return set ? MEMORY : INVALID_ARGUMENT;
	int fd = open_events(&now);
	if (fd >= 0) {
		(*set)->read = now.st_size;
		close(fd);
	}
	return OK;
}

EXPORT result_t nvmlEventSetFree(event_set_t set)
{
	free(set);
	return OK;
}

EXPORT result_t nvmlDeviceGetSupportedEventTypes(device_t device, unsigned long long *types)
{
	OPEN(device);
	return types ? (*types = EVENT_XID, OK) : INVALID_ARGUMENT;
}

EXPORT result_t nvmlDeviceRegisterEvents(device_t device, unsigned long long types, event_set_t set)
{
	OPEN(device);
	if (!set)
		return INVALID_ARGUMENT;
	if (types & ~(unsigned long long)EVENT_XID)
		return NOT_SUPPORTED;
	pthread_mutex_lock(&lock);
	size_t i = 0;
	while (i < set->count && set->devices[i] != device)
		i++;
	result_t result = i < MAX_CARDS ? OK : MEMORY;
	if (!result && i == set->count)
		set->devices[set->count++] = device;
	pthread_mutex_unlock(&lock);
	return result;
}

/* What a line says to this set: OK with `data` filled in, an error to return, or TIMEOUT for "nothing". */
static result_t tell(const event_set_t set, const char *line, event_data_t *data)
{
	char verb[16], word[UUID_SIZE];
	unsigned xid;
	int fields = sscanf(line, "%15s %95s %u", verb, word, &xid);
	if (fields == 2 && !strcmp(verb, "wait-error"))
		return code_from_name(word) > 0 ? (result_t)code_from_name(word) : TIMEOUT;
	if (fields == 3 && !strcmp(verb, "xid")) {
		for (size_t i = 0; i < set->count; i++)
			if (!strcmp(door_uuid(set->devices[i]), word)) {
				*data = (event_data_t){set->devices[i], EVENT_XID, xid, NO_INSTANCE, NO_INSTANCE};
				return OK;
			}
		return TIMEOUT;
	}
	fprintf(stderr, "fakenvml: events: cannot use %.100s\n", line);
	return TIMEOUT;
}

/* The first thing that the whole lines behind the cursor say; TIMEOUT if they say nothing. */
static result_t next_line(event_set_t set, event_data_t *data)
{
	char text[4096], *end;
	struct stat now;
	result_t result = TIMEOUT;
	ssize_t got;
	int fd = open_events(&now);
	if (fd < 0)
		return TIMEOUT;
	if (now.st_size < set->read) /* another file: everything in it is new */
		set->read = 0;
	while (result == TIMEOUT && (got = pread(fd, text, sizeof text - 1, set->read)) > 0) {
		text[got] = 0;
		end = memchr(text, '\n', (size_t)got);
		if (!end && got < (ssize_t)sizeof text - 1)
			break; /* somebody is still writing this line */
		set->read += end ? end + 1 - text : got;
		if (!end)
			continue; /* no line of ours is that long */
		*end = 0;
		if (text[strspn(text, " \t\r")] && *text != '#')
			result = tell(set, text, data);
	}
	close(fd);
	return result;
}

/* GPU_IS_LOST as soon as one card of the set is lost or away; TIMEOUT if all are there. */
static result_t any_lost(const event_set_t set)
{
	struct cards cards;
	result_t result = door_cards(&cards);
	if (result)
		return result;
	for (size_t i = 0; i < set->count; i++) {
		size_t k = 0;
		while (k < cards.count && strcmp(cards.card[k].uuid, door_uuid(set->devices[i])))
			k++;
		if (k == cards.count || cards.card[k].lost)
			return GPU_IS_LOST;
	}
	return TIMEOUT;
}

EXPORT result_t nvmlEventSetWait_v2(event_set_t set, event_data_t *data, unsigned timeout_ms)
{
	struct timespec now;
	if (!set || !data)
		return INVALID_ARGUMENT;
	clock_gettime(CLOCK_MONOTONIC, &now);
	long long end = now.tv_sec * 1000LL + now.tv_nsec / 1000000 + timeout_ms;
	for (;;) {
		pthread_mutex_lock(&lock);
		result_t result = next_line(set, data);
		if (result == TIMEOUT)
			result = any_lost(set);
		pthread_mutex_unlock(&lock);
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (result != TIMEOUT || now.tv_sec * 1000LL + now.tv_nsec / 1000000 >= end)
			return result;
		door_pause();
	}
}
