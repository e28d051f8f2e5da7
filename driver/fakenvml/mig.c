/* MIG: the mode of a card is told as the cards file has it; there are no instances and none can be made. */
#include "door.h"

/* The calls that would list, make or remove instances, by what they are asked with. */
#define NONE(function, ...)                                    \
	EXPORT result_t function(device_t device, __VA_ARGS__) \
	{                                                      \
		OPEN(device);                                  \
		return NOT_SUPPORTED;                          \
	}
#define NO_INSTANCE_HAS(function, ...)            \
	EXPORT result_t function(__VA_ARGS__)     \
	{                                         \
		struct cards cards;               \
		result_t result = door_cards(&cards); \
		return result ? result : INVALID_ARGUMENT; \
	}

EXPORT result_t nvmlDeviceGetMigMode(device_t device, unsigned *current, unsigned *pending)
{
	OPEN(device);
	if (!current || !pending)
		return INVALID_ARGUMENT;
	if (card.mig < 0)
		return NOT_SUPPORTED;
	*current = *pending = (unsigned)card.mig;
	return OK;
}

EXPORT result_t nvmlDeviceGetMaxMigDeviceCount(device_t device, unsigned *count)
{
	OPEN(device);
	return give(card.mig < 0 ? 0 : 7, count);
}

EXPORT result_t nvmlDeviceGetMigDeviceHandleByIndex(device_t device, unsigned, device_t *)
{
	OPEN(device);
	return card.mig < 0 ? NOT_SUPPORTED : NOT_FOUND;
}

EXPORT result_t nvmlDeviceIsMigDeviceHandle(device_t device, unsigned *is_mig)
{
	OPEN(device);
	return give(0, is_mig);
}

NONE(nvmlDeviceSetMigMode, unsigned, unsigned *)
NONE(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, device_t *)
NONE(nvmlDeviceGetGpuInstanceId, unsigned *)
NONE(nvmlDeviceGetComputeInstanceId, unsigned *)
NONE(nvmlDeviceGetAttributes_v2, void *)
NONE(nvmlDeviceGetGpuInstanceProfileInfo, unsigned, void *)
NONE(nvmlDeviceGetGpuInstanceProfileInfoV, unsigned, void *)
NONE(nvmlDeviceGetGpuInstancePossiblePlacements_v2, unsigned, void *, unsigned *)
NONE(nvmlDeviceGetGpuInstances, unsigned, void *, unsigned *)
NONE(nvmlDeviceGetGpuInstanceById, unsigned, void *)
NONE(nvmlDeviceCreateGpuInstance, unsigned, void *)
NONE(nvmlDeviceCreateGpuInstanceWithPlacement, unsigned, void *, void *)

NO_INSTANCE_HAS(nvmlGpuInstanceGetInfo, void *, void *)
NO_INSTANCE_HAS(nvmlGpuInstanceDestroy, void *)
NO_INSTANCE_HAS(nvmlGpuInstanceGetComputeInstanceProfileInfo, void *, unsigned, unsigned, void *)
NO_INSTANCE_HAS(nvmlGpuInstanceGetComputeInstanceProfileInfoV, void *, unsigned, unsigned, void *)
NO_INSTANCE_HAS(nvmlGpuInstanceCreateComputeInstance, void *, unsigned, void *)
NO_INSTANCE_HAS(nvmlGpuInstanceGetComputeInstances, void *, unsigned, void *, unsigned *)
NO_INSTANCE_HAS(nvmlGpuInstanceGetComputeInstanceById, void *, unsigned, void *)
NO_INSTANCE_HAS(nvmlComputeInstanceGetInfo_v2, void *, void *)
NO_INSTANCE_HAS(nvmlComputeInstanceDestroy, void *)
