/* The compute mode of a card: the one state that a caller sets. It is a digit in a file a card, in the directory
 * $FAKE_NVML_STATE, else <cards file>.state; so every process sees it, and it outlives them. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "door.h"

enum { LAST_MODE = 3 };

/* False where the path is too long to be one. */
static bool place(const struct card *card, bool make, char *path, size_t size)
{
	char directory[PATH_MAX];
	const char *named = getenv("FAKE_NVML_STATE");
	if (named && *named) {
		snprintf(directory, sizeof directory, "%s", named);
	} else {
		door_events_path(directory, sizeof directory);
		char *end = strrchr(directory, '.');
		snprintf(end, sizeof directory - (size_t)(end - directory), ".state");
	}
	if (make)
		mkdir(directory, 0755);
	return (size_t)snprintf(path, size, "%s/%s.compute-mode", directory, card->uuid) < size;
}

EXPORT result_t nvmlDeviceGetComputeMode(device_t device, unsigned *mode)
{
	char path[PATH_MAX];
	unsigned found = 0;
	OPEN(device);
	FILE *file = place(&card, false, path, sizeof path) ? fopen(path, "re") : NULL;
	if (file) {
		if (fscanf(file, "%1u", &found) != 1)
			found = 0;
		fclose(file);
	}
	return give(found, mode);
}

EXPORT result_t nvmlDeviceSetComputeMode(device_t device, unsigned mode)
{
	char path[PATH_MAX];
	OPEN(device);
	if (mode > LAST_MODE)
		return INVALID_ARGUMENT;
	FILE *file = place(&card, true, path, sizeof path) ? fopen(path, "we") : NULL;
	if (!file)
		return NO_PERMISSION;
	bool written = fprintf(file, "%u\n", mode) > 0;
	return fclose(file) == 0 && written ? OK : UNKNOWN;
}
