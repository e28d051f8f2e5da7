/* The cards file: what it can say, as values. README.md describes the text. */
#ifndef FAKENVML_CARDS_H
#define FAKENVML_CARDS_H

#include <stdbool.h>
#include <stddef.h>

#include "abi.h"

enum { MAX_CARDS = 64, MAX_FAILURES = 8, MAX_PROCESSES = 16, PLACE_SIZE = 256 };

struct failure {
	char function[64]; /* "*" means every call */
	int code;
};

struct card {
	char uuid[UUID_SIZE], name[NAME_SIZE];
	unsigned minor, domain, bus, slot, module;
	unsigned long long memory, used;
	unsigned arch, brand, cc_major, cc_minor;
	int numa; /* -1: the platform does not say */
	int mig;  /* -1: a card that knows no MIG */
	unsigned temperature, power, utilization;
	bool lost, hang;
	struct failure failures[MAX_FAILURES];
	size_t failure_count;
	process_t processes[MAX_PROCESSES];
	unsigned busy[MAX_PROCESSES]; /* percent of the cores, a process */
	size_t process_count;
};

struct cards {
	char driver[VERSION_SIZE];
	char groups[PLACE_SIZE]; /* a directory that stands for the control groups; empty: the kernel's */
	char memory_file[PLACE_SIZE]; /* empty: beside the cards file */
	int cuda; /* 13000 for 13.0 */
	int init; /* what every call answers while it is not OK */
	struct card card[MAX_CARDS];
	size_t count;
};

/* Reads one file. On false, `why` names the line and what is wrong with it. */
bool cards_read(int fd, struct cards *cards, char why[256]);

/* The number of an error name such as GPU_IS_LOST, in either case; -1 if there is no such name. */
int code_from_name(const char *name);

#endif
