/* From the text of a cards file to values. Nothing here keeps state; a text is taken whole or refused whole. */
#define _GNU_SOURCE
#include "cards.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MAX_TEXT = 1 << 20 };

struct word {
	const char *name;
	long value;
};

static const struct word codes[] = {
	{"SUCCESS", 0}, {"UNINITIALIZED", 1}, {"INVALID_ARGUMENT", 2}, {"NOT_SUPPORTED", 3}, {"NO_PERMISSION", 4},
	{"ALREADY_INITIALIZED", 5}, {"NOT_FOUND", 6}, {"INSUFFICIENT_SIZE", 7}, {"INSUFFICIENT_POWER", 8},
	{"DRIVER_NOT_LOADED", 9}, {"TIMEOUT", 10}, {"IRQ_ISSUE", 11}, {"LIBRARY_NOT_FOUND", 12},
	{"FUNCTION_NOT_FOUND", 13}, {"CORRUPTED_INFOROM", 14}, {"GPU_IS_LOST", 15}, {"RESET_REQUIRED", 16},
	{"OPERATING_SYSTEM", 17}, {"LIB_RM_VERSION_MISMATCH", 18}, {"IN_USE", 19}, {"MEMORY", 20}, {"NO_DATA", 21},
	{"VGPU_ECC_NOT_SUPPORTED", 22}, {"INSUFFICIENT_RESOURCES", 23}, {"FREQ_NOT_SUPPORTED", 24},
	{"ARGUMENT_VERSION_MISMATCH", 25}, {"DEPRECATED", 26}, {"NOT_READY", 27}, {"GPU_NOT_FOUND", 28},
	{"INVALID_STATE", 29}, {"RESET_TYPE_NOT_SUPPORTED", 30}, {"UNKNOWN", 999}, {NULL, 0},
};
static const struct word archs[] = {
	{"kepler", 2}, {"maxwell", 3}, {"pascal", 4}, {"volta", 5}, {"turing", 6}, {"ampere", 7}, {"ada", 8},
	{"hopper", 9}, {"blackwell", 10}, {"rubin", 13}, {"unknown", 0xffffffff}, {NULL, 0},
};
static const struct word brands[] = {
	{"unknown", 0}, {"quadro", 1}, {"tesla", 2}, {"nvs", 3}, {"grid", 4}, {"geforce", 5}, {"titan", 6},
	{"quadro-rtx", 12}, {"nvidia-rtx", 13}, {"nvidia", 14}, {"geforce-rtx", 15}, {"titan-rtx", 16}, {NULL, 0},
};
static const struct word bools[] = {{"false", 0}, {"true", 1}, {"no", 0}, {"yes", 1}, {NULL, 0}};
static const struct word migs[] = {{"unsupported", -1}, {"off", 0}, {"on", 1}, {NULL, 0}};

static bool look_up(const struct word *words, const char *name, long *value)
{
	for (; words->name; words++)
		if (!strcasecmp(words->name, name))
			return *value = words->value, true;
	return false;
}

int code_from_name(const char *name)
{
	long value;
	return look_up(codes, name, &value) ? (int)value : -1;
}

/* A whole number up to `limit`, with nothing behind it but `unit`. */
static bool number(const char *text, const char *unit, unsigned long long limit, unsigned long long *value)
{
	char *end;
	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return !errno && *value <= limit && (!*end || !strcmp(end, unit));
}

static bool small(const char *text, const char *unit, unsigned limit, unsigned *value)
{
	unsigned long long wide;
	return number(text, unit, limit, &wide) && (*value = (unsigned)wide, true);
}

static bool mebibytes(const char *text, unsigned long long *bytes)
{
	return number(text, "MiB", 1ULL << 30, bytes) && (*bytes <<= 20, true);
}

static bool dotted(const char *text, unsigned *major, unsigned *minor)
{
	char rest;
	return isdigit((unsigned char)*text) && sscanf(text, "%4u.%4u%c", major, minor, &rest) == 2;
}

static bool copy(char *target, size_t size, const char *text)
{
	size_t length = strlen(text);
	return length && length < size && memcpy(target, text, length + 1);
}

static bool uuid(struct card *card, const char *text)
{
	return !strncmp(text, "GPU-", 4) && text[4] && strspn(text + 4, "-0123456789abcdefABCDEF") == strlen(text + 4) &&
	       strlen(text) < VERSION_SIZE && copy(card->uuid, UUID_SIZE, text);
}

static bool pci(struct card *card, const char *text)
{
	unsigned function;
	char rest;
	return sscanf(text, "%8x:%2x:%2x.%1x%c", &card->domain, &card->bus, &card->slot, &function, &rest) == 4 &&
	       !function && card->slot < 32;
}

/* fail=<function>:<error name> */
static bool failure(struct card *card, const char *text)
{
	struct failure *one = &card->failures[card->failure_count];
	const char *colon = strrchr(text, ':');
	size_t length = colon ? (size_t)(colon - text) : 0;
	if (!length || length >= sizeof one->function || card->failure_count == MAX_FAILURES)
		return false;
	memcpy(one->function, text, length);
	one->function[length] = 0;
	one->code = code_from_name(colon + 1);
	card->failure_count++;
	return one->code > 0;
}

/* process=<pid>:<MiB>[:<percent of the cores>] */
static bool process(struct card *card, char *text)
{
	process_t *one = &card->processes[card->process_count];
	char *colon = strchr(text, ':'), *busy;
	if (!colon || card->process_count == MAX_PROCESSES)
		return false;
	*colon = 0;
	if ((busy = strchr(colon + 1, ':')))
		*busy = 0;
	one->gpu_instance = one->compute_instance = NO_INSTANCE;
	if (busy && !small(busy + 1, "%", 100, &card->busy[card->process_count]))
		return false;
	card->process_count++;
	return small(text, "", 1 << 22, &one->pid) && mebibytes(colon + 1, &one->used_memory);
}

static bool numa(struct card *card, const char *text)
{
	unsigned node;
	if (!strcmp(text, "none"))
		return card->numa = -1, true;
	return small(text, "", 1023, &node) && (card->numa = (int)node, true);
}

static bool fact(struct card *card, const char *key, char *text)
{
	long value;
#define IS(word) (!strcmp(key, word))
#define WORD(words, field) (look_up(words, text, &value) && (card->field = (__typeof__(card->field))value, true))
	if (IS("uuid")) return uuid(card, text);
	if (IS("name")) return copy(card->name, NAME_SIZE, text);
	if (IS("minor")) return small(text, "", 255, &card->minor);
	if (IS("pci")) return pci(card, text);
	if (IS("memory")) return mebibytes(text, &card->memory);
	if (IS("used")) return mebibytes(text, &card->used);
	if (IS("arch")) return WORD(archs, arch);
	if (IS("brand")) return WORD(brands, brand);
	if (IS("cc")) return dotted(text, &card->cc_major, &card->cc_minor);
	if (IS("numa")) return numa(card, text);
	if (IS("module")) return small(text, "", 255, &card->module);
	if (IS("mig")) return WORD(migs, mig);
	if (IS("temperature")) return small(text, "C", 200, &card->temperature);
	if (IS("power")) return small(text, "mW", 10000000, &card->power);
	if (IS("utilization")) return small(text, "%", 100, &card->utilization);
	if (IS("lost")) return WORD(bools, lost);
	if (IS("hang")) return WORD(bools, hang);
	if (IS("fail")) return failure(card, text);
	if (IS("process")) return process(card, text);
#undef IS
#undef WORD
	return false;
}

/* Cuts the next word off `*rest`; quotes keep blanks inside a word. NULL at the end of the line. */
static char *next_word(char **rest)
{
	char *from = *rest + strspn(*rest, " \t\r"), *to = from, *start = from;
	static char open_quote[] = "an open quote";
	bool quoted = false;
	if (!*from || *from == '#')
		return NULL;
	for (; *from && (quoted || !strchr(" \t\r", *from)); from++)
		if (*from == '"')
			quoted = !quoted;
		else
			*to++ = *from;
	*rest = *from ? from + 1 : from;
	*to = 0;
	return quoted ? open_quote : start;
}

static bool add_card(struct cards *cards, char *rest, const char **bad)
{
	struct card *card = &cards->card[cards->count];
	char *word;
	if (cards->count == MAX_CARDS)
		return *bad = "more than 64 cards", false;
	*card = (struct card){
		.name = "NVIDIA H100 80GB HBM3", .minor = (unsigned)cards->count, .bus = 10 + (unsigned)cards->count,
		.memory = 81559ULL << 20, .arch = 9, .brand = 14, .cc_major = 9, .numa = -1,
		.module = (unsigned)cards->count, .temperature = 35, .power = 70000,
	};
	while ((word = next_word(&rest))) {
		char *equals = strchr(word, '=');
		if (!equals)
			return *bad = word, false;
		*equals = 0;
		if (!fact(card, word, equals + 1))
			return *bad = word, false;
	}
	if (!*card->uuid)
		return *bad = "no uuid", false;
	for (size_t i = 0; i < cards->count; i++)
		if (!strcmp(cards->card[i].uuid, card->uuid))
			return *bad = "a uuid used before", false;
	cards->count++;
	return true;
}

static bool take_line(struct cards *cards, char *line, const char **bad)
{
	char *rest = line, *key = next_word(&rest), *value;
	unsigned major, minor;
	if (!key)
		return true;
	if (!strcmp(key, "card"))
		return add_card(cards, rest, bad);
	*bad = key;
	value = next_word(&rest);
	if (!value || next_word(&rest))
		return false;
	if (!strcmp(key, "driver"))
		return copy(cards->driver, VERSION_SIZE, value);
	if (!strcmp(key, "cuda"))
		return dotted(value, &major, &minor) && (cards->cuda = (int)(major * 1000 + minor * 10), true);
	if (!strcmp(key, "cgroups"))
		return copy(cards->groups, PLACE_SIZE, value);
	if (!strcmp(key, "memory-file"))
		return copy(cards->memory_file, PLACE_SIZE, value);
	if (!strcmp(key, "init"))
		return (cards->init = code_from_name(value)) >= 0;
	return false;
}

bool cards_read(int fd, struct cards *cards, char why[256])
{
	char *text = malloc(MAX_TEXT), *rest = text, *line;
	const char *bad = NULL;
	ssize_t got, length = 0;
	int at = 0;
	bool good = text;
	while (good && (got = pread(fd, text + length, (size_t)(MAX_TEXT - 1 - length), length)) > 0)
		length += got;
	*cards = (struct cards){.driver = "580.95.05", .cuda = 13000};
	if (!good || got < 0 || length == MAX_TEXT - 1 || memchr(text, 0, (size_t)length)) {
		snprintf(why, 256, "not a text of less than 1 MiB");
		free(text);
		return false;
	}
	text[length] = 0;
	while (good && (line = strsep(&rest, "\n"))) {
		at++;
		good = take_line(cards, line, &bad);
	}
	if (!good)
		snprintf(why, 256, "line %d: cannot use %.100s", at, bad);
	free(text);
	return good;
}
