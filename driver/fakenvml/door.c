/* One picture of the cards file for the process, read again whenever the file is another one.
 *
 * A broken file is refused at init, and later ignored with one line on stderr: the last good picture stays. The file is
 * kept open, so that its inode number cannot come back under the file that replaces it. Handles are never freed. */
#define _GNU_SOURCE
#include "door.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct handle {
	struct handle *next;
	char uuid[UUID_SIZE];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct handle *handles;
static struct cards picture;
static struct stat seen;
static int held = -1;
static unsigned users;
static char started_with[VERSION_SIZE]; /* the driver at the first init */

static const char *cards_path(void)
{
	static char path[PATH_MAX];
	const char *named = getenv("FAKE_NVML_CARDS");
	Dl_info self;
	char *slash;
	if (named && *named)
		return named;
	if (!dladdr((void *)cards_path, &self) || strlen(self.dli_fname) > PATH_MAX - 32)
		return "fake-nvml.cards";
	strcpy(path, self.dli_fname);
	slash = strrchr(path, '/');
	strcpy(slash ? slash + 1 : path, "fake-nvml.cards");
	return path;
}

static bool same(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
	       !memcmp(&a->st_mtim, &b->st_mtim, sizeof a->st_mtim);
}

/* With the lock held: false if there is no usable text (and, where there was one before, the old picture stays). */
static bool refresh(void)
{
	static struct cards fresh;
	struct stat now;
	char why[256];
	int fd;
	bool good;
	if (held >= 0 && !stat(cards_path(), &now) && same(&now, &seen))
		return true;
	fd = open(cards_path(), O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &now)) {
		if (fd >= 0)
			close(fd);
		picture.init = DRIVER_NOT_LOADED;
		held = held >= 0 ? (close(held), -1) : -1;
		return true;
	}
	good = cards_read(fd, &fresh, why);
	if (good)
		picture = fresh;
	else
		fprintf(stderr, "fakenvml: %s: %s\n", cards_path(), why);
	if (held >= 0)
		close(held);
	held = fd;
	seen = now;
	return good;
}

result_t door_init(void)
{
	result_t result = OK;
	pthread_mutex_lock(&lock);
	if (!users && held >= 0) /* a new start reads anew, and so refuses a text that is still broken */
		held = (close(held), -1);
	if (!refresh())
		result = UNKNOWN;
	else if (picture.init)
		result = picture.init;
	else if (!users++)
		strcpy(started_with, picture.driver);
	pthread_mutex_unlock(&lock);
	return result;
}

result_t door_shutdown(void)
{
	pthread_mutex_lock(&lock);
	result_t result = users ? (users--, OK) : UNINITIALIZED;
	pthread_mutex_unlock(&lock);
	return result;
}

/* With the lock held. */
static result_t state(void)
{
	if (!users)
		return UNINITIALIZED;
	refresh();
	return picture.init;
}

result_t door_cards(struct cards *cards)
{
	pthread_mutex_lock(&lock);
	result_t result = state();
	if (!result)
		*cards = picture;
	pthread_mutex_unlock(&lock);
	return result;
}

enum { NOT_YET = -1 };

/* With the lock held: what the card answers now, NOT_YET while it hangs. */
static int answer(device_t device, const char *function, struct card *card)
{
	result_t result = state();
	const char *uuid = door_uuid(device);
	if (result)
		return result;
	if (!uuid)
		return INVALID_ARGUMENT;
	if (strcmp(started_with, picture.driver))
		return LIB_RM_VERSION_MISMATCH;
	for (size_t i = 0; i < picture.count; i++) {
		if (strcmp(picture.card[i].uuid, uuid))
			continue;
		*card = picture.card[i];
		if (card->lost)
			return GPU_IS_LOST;
		if (card->hang)
			return NOT_YET;
		for (size_t k = 0; k < card->failure_count; k++)
			if (!strcmp(card->failures[k].function, function) || !strcmp(card->failures[k].function, "*"))
				return card->failures[k].code;
		return OK;
	}
	return GPU_IS_LOST; /* a card that was here and is no longer */
}

result_t door_card(device_t device, const char *function, struct card *card)
{
	for (;;) {
		pthread_mutex_lock(&lock);
		int result = answer(device, function, card);
		pthread_mutex_unlock(&lock);
		if (result != NOT_YET)
			return result;
		door_pause();
	}
}

device_t door_handle(const char *uuid)
{
	pthread_mutex_lock(&lock);
	struct handle *one = handles;
	while (one && strcmp(one->uuid, uuid))
		one = one->next;
	if (!one && (one = calloc(1, sizeof *one))) {
		snprintf(one->uuid, UUID_SIZE, "%s", uuid);
		one->next = handles;
		handles = one;
	}
	pthread_mutex_unlock(&lock);
	return one;
}

const char *door_uuid(device_t device)
{
	for (struct handle *one = handles; one; one = one->next)
		if (one == device)
			return one->uuid;
	return NULL;
}

void door_events_path(char *path, size_t size)
{
	pthread_mutex_lock(&lock);
	snprintf(path, size, "%s.events", cards_path());
	pthread_mutex_unlock(&lock);
}

void door_memory_path(char *path, size_t size)
{
	pthread_mutex_lock(&lock);
	if (*picture.memory_file)
		snprintf(path, size, "%s", picture.memory_file);
	else
		snprintf(path, size, "%s.memory", cards_path());
	pthread_mutex_unlock(&lock);
}

static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;

void door_lock(void)
{
	pthread_mutex_lock(&shared);
}

void door_unlock(void)
{
	pthread_mutex_unlock(&shared);
}

void door_pause(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}
