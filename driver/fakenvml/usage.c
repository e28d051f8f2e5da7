/* What a card is doing: memory, processes, heat, health counters. */
#include <limits.h>
#include <string.h>
#include <time.h>

#include "door.h"
#include "memory.h"

enum { MOST = MAX_PROCESSES + MAX_LINES };

/* The processes of the cards file, and those that have really allocated (client.c) and that this process can see. */
static unsigned listed(const struct card *card, process_t list[MOST], unsigned long long *hidden)
{
	static struct memory memory;
	char file[PATH_MAX];
	unsigned count = 0;
	for (; count < card->process_count; count++)
		list[count] = card->processes[count];
	door_memory_path(file, sizeof file);
	door_lock();
	*hidden = 0;
	if (memory_open(&memory, file, false))
		for (int i = 0; i < memory.count; i++) {
			const struct line *line = &memory.line[i];
			if (line->kind != USE || strcmp(line->uuid, card->uuid))
				continue;
			if (line->holder)
				list[count++] = (process_t){(unsigned)line->holder, line->bytes, NO_INSTANCE, NO_INSTANCE};
			else
				*hidden += line->bytes;
		}
	memory_close(&memory);
	door_unlock();
	return count;
}

/* Memory in use: what the file says and what processes hold, never more than there is. */
static unsigned long long used(const struct card *card)
{
	process_t list[MOST];
	unsigned long long sum;
	unsigned count = listed(card, list, &sum);
	sum += card->used;
	for (unsigned i = 0; i < count; i++)
		sum += list[i].used_memory;
	return sum < card->memory ? sum : card->memory;
}

EXPORT result_t nvmlDeviceGetMemoryInfo(device_t device, memory_t *memory)
{
	OPEN(device);
	if (!memory)
		return INVALID_ARGUMENT;
	*memory = (memory_t){.total = card.memory, .free = card.memory - used(&card), .used = used(&card)};
	return OK;
}

EXPORT result_t nvmlDeviceGetMemoryInfo_v2(device_t device, memory_v2_t *memory)
{
	OPEN(device);
	if (!memory)
		return INVALID_ARGUMENT;
	if (memory->version != VERSION(memory_v2_t, 2))
		return ARGUMENT_VERSION_MISMATCH;
	memory->total = card.memory;
	memory->reserved = 0;
	memory->used = used(&card);
	memory->free = card.memory - memory->used;
	return OK;
}

EXPORT result_t nvmlDeviceGetComputeRunningProcesses_v3(device_t device, unsigned *count, process_t *infos)
{
	OPEN(device);
	process_t list[MOST];
	unsigned long long hidden;
	unsigned room, there = listed(&card, list, &hidden);
	if (!count)
		return INVALID_ARGUMENT;
	room = *count;
	*count = there;
	if (room < there || (!infos && there))
		return INSUFFICIENT_SIZE;
	if (there)
		memcpy(infos, list, there * sizeof *infos);
	return OK;
}

/* How busy processes keep the card; those that are not are left out, as the real one does. */
EXPORT result_t nvmlDeviceGetProcessUtilization(device_t device, busy_t *samples, unsigned *count, unsigned long long)
{
	OPEN(device);
	struct timespec now;
	unsigned there = 0, room;
	if (!count)
		return INVALID_ARGUMENT;
	room = *count;
	clock_gettime(CLOCK_REALTIME, &now);
	for (size_t i = 0; i < card.process_count; i++) {
		if (!card.busy[i])
			continue;
		if (samples && there < room)
			samples[there] = (busy_t){.pid = card.processes[i].pid, .cores = card.busy[i],
				.time = (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000};
		there++;
	}
	*count = there;
	if (!there)
		return NOT_FOUND;
	return !samples || room < there ? INSUFFICIENT_SIZE : OK;
}

EXPORT result_t nvmlDeviceGetUtilizationRates(device_t device, utilization_t *rates)
{
	OPEN(device);
	if (!rates)
		return INVALID_ARGUMENT;
	rates->gpu = card.utilization;
	rates->memory = card.utilization / 2;
	return OK;
}

EXPORT result_t nvmlDeviceGetTemperature(device_t device, unsigned sensor, unsigned *degrees)
{
	OPEN(device);
	return sensor ? INVALID_ARGUMENT : give(card.temperature, degrees);
}

EXPORT result_t nvmlDeviceGetPowerUsage(device_t device, unsigned *milliwatts)
{
	OPEN(device);
	return give(card.power, milliwatts);
}

EXPORT result_t nvmlDeviceGetRemappedRows(device_t device, unsigned *correctable, unsigned *uncorrectable,
					  unsigned *pending, unsigned *failed)
{
	OPEN(device);
	if (!correctable || !uncorrectable || !pending || !failed)
		return INVALID_ARGUMENT;
	*correctable = *uncorrectable = *pending = *failed = 0;
	return OK;
}
