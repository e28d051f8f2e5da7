/* The compute mode of a card: a digit in a file a card, beside the file that memory is kept in; so every process sees it,
 * and it outlives them. */
#include <limits.h>
#include <stdio.h>

#include "door.h"

enum { LAST_MODE = 3 };

static FILE *kept(const struct card *card, const char *how)
{
	char beside[PATH_MAX], path[PATH_MAX + UUID_SIZE + 8];
	door_memory_path(beside, sizeof beside);
	snprintf(path, sizeof path, "%s.%s.mode", beside, card->uuid);
	return fopen(path, how);
}

EXPORT result_t nvmlDeviceGetComputeMode(device_t device, unsigned *mode)
{
	unsigned found = 0;
	OPEN(device);
	FILE *file = kept(&card, "re");
	if (file) {
		if (fscanf(file, "%1u", &found) != 1)
			found = 0;
		fclose(file);
	}
	return give(found, mode);
}

EXPORT result_t nvmlDeviceSetComputeMode(device_t device, unsigned mode)
{
	OPEN(device);
	if (mode > LAST_MODE)
		return INVALID_ARGUMENT;
	FILE *file = kept(&card, "we");
	if (!file)
		return NO_PERMISSION;
	bool written = fprintf(file, "%u\n", mode) > 0;
	return fclose(file) == 0 && written ? OK : UNKNOWN;
}
