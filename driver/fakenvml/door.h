/* The door that every call goes through: it keeps the picture of the cards file fresh and turns handles into cards. */
#ifndef FAKENVML_DOOR_H
#define FAKENVML_DOOR_H

#include <string.h>

#include "cards.h"

result_t door_init(void);
result_t door_shutdown(void);

/* OK and a copy of the whole picture, or what a call must answer now. */
result_t door_cards(struct cards *cards);

/* OK and a copy of the card behind a handle, or what `function` must answer. Blocks while the card hangs. */
result_t door_card(device_t device, const char *function, struct card *card);

/* The handle of a card: the same for as long as the process lives, also while the card is away. */
device_t door_handle(const char *uuid);

/* The uuid behind a handle; NULL for anything that is no handle of ours. */
const char *door_uuid(device_t device);

/* The name of the file with the commands, which stands beside the cards file. */
void door_events_path(char *path, size_t size);

/* The name of the file with limits and uses. */
void door_memory_path(char *path, size_t size);

/* For what the whole process has one of, beside the picture. */
void door_lock(void);
void door_unlock(void);

/* Waits one beat; what blocks here polls, since a file is what it waits for. */
void door_pause(void);

/* Opens a call on one card: declares `card`, and returns early with what the card has to answer. */
#define OPEN(device)                                                   \
	struct card card;                                              \
	{                                                              \
		result_t refused = door_card(device, __func__, &card); \
		if (refused)                                           \
			return refused;                                \
	}

static inline result_t give(unsigned value, unsigned *to)
{
	return to ? (*to = value, OK) : INVALID_ARGUMENT;
}

static inline result_t give_text(const char *from, char *to, unsigned size)
{
	if (!to)
		return INVALID_ARGUMENT;
	if (strlen(from) >= size)
		return INSUFFICIENT_SIZE;
	return strcpy(to, from), OK;
}

#endif
