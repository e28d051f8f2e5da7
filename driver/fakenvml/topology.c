/* How cards lie to each other and to the processors: no NVLink, no fabric, one host bridge per NUMA node. */
#include <string.h>

#include "door.h"

static result_t one_bit(int bit, unsigned size, unsigned long *set)
{
	if (!set || !size)
		return INVALID_ARGUMENT;
	memset(set, 0, size * sizeof *set);
	if ((unsigned)bit < size * 64)
		set[bit / 64] = 1UL << bit % 64;
	return OK;
}

EXPORT result_t nvmlDeviceGetNumaNodeId(device_t device, int *node)
{
	OPEN(device);
	if (!node)
		return INVALID_ARGUMENT;
	*node = card.numa;
	return card.numa < 0 ? NOT_SUPPORTED : OK;
}

EXPORT result_t nvmlDeviceGetMemoryAffinity(device_t device, unsigned size, unsigned long *nodes, unsigned)
{
	OPEN(device);
	return card.numa < 0 ? NOT_SUPPORTED : one_bit(card.numa, size, nodes);
}

EXPORT result_t nvmlDeviceGetCpuAffinity(device_t device, unsigned size, unsigned long *processors)
{
	OPEN(device);
	return one_bit(0, size, processors);
}

EXPORT result_t nvmlDeviceGetTopologyCommonAncestor(device_t device, device_t other, unsigned *level)
{
	OPEN(device);
	struct card second;
	result_t result = door_card(other, __func__, &second);
	if (result)
		return result;
	return give(device == other ? 0 : card.numa == second.numa ? 30 : 50, level);
}

EXPORT result_t nvmlDeviceGetP2PStatus(device_t device, device_t other, unsigned, unsigned *status)
{
	OPEN(device);
	struct card second;
	result_t result = door_card(other, __func__, &second);
	if (result)
		return result;
	return give(5, status); /* not supported */
}

EXPORT result_t nvmlDeviceGetNvLinkState(device_t device, unsigned, unsigned *)
{
	OPEN(device);
	return NOT_SUPPORTED;
}

EXPORT result_t nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t device, unsigned, pci_info_t *)
{
	OPEN(device);
	return NOT_SUPPORTED;
}

EXPORT result_t nvmlDeviceGetNvLinkRemoteDeviceType(device_t device, unsigned, unsigned *)
{
	OPEN(device);
	return NOT_SUPPORTED;
}

/* State 0 of both: this card has no part in a fabric. */
EXPORT result_t nvmlDeviceGetGpuFabricInfo(device_t device, fabric_t *fabric)
{
	OPEN(device);
	return fabric ? (*fabric = (fabric_t){0}, OK) : INVALID_ARGUMENT;
}

/* Every version begins with the second one's fields, which stay zero but for the version itself. */
EXPORT result_t nvmlDeviceGetGpuFabricInfoV(device_t device, fabric_v2_t *fabric)
{
	OPEN(device);
	if (!fabric)
		return INVALID_ARGUMENT;
	if (fabric->version >> 24 != 2 && fabric->version >> 24 != 3)
		return ARGUMENT_VERSION_MISMATCH;
	*fabric = (fabric_v2_t){.version = fabric->version};
	return OK;
}
