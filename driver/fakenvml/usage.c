/* What a card is doing: memory, processes, heat, health counters. */
#include <string.h>

#include "door.h"

/* Memory in use: what the file says and what its processes hold, never more than there is. */
static unsigned long long used(const struct card *card)
{
	unsigned long long sum = card->used;
	for (size_t i = 0; i < card->process_count; i++)
		sum += card->processes[i].used_memory;
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

static result_t processes(const struct card *card, unsigned *count, process_t *infos)
{
	unsigned room;
	if (!count)
		return INVALID_ARGUMENT;
	room = *count;
	*count = (unsigned)card->process_count;
	if (room < card->process_count || (!infos && card->process_count))
		return INSUFFICIENT_SIZE;
	if (card->process_count)
		memcpy(infos, card->processes, card->process_count * sizeof *infos);
	return OK;
}

EXPORT result_t nvmlDeviceGetComputeRunningProcesses_v3(device_t device, unsigned *count, process_t *infos)
{
	OPEN(device);
	return processes(&card, count, infos);
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
