/* What a card is: finding it, and its lasting facts. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "door.h"

/* A handle, if the card answers at all: a lost card keeps its place among the others and refuses here. */
static result_t hand_out(const struct card *card, const char *function, device_t *device)
{
	struct card ignored;
	*device = door_handle(card->uuid);
	return *device ? door_card(*device, function, &ignored) : MEMORY;
}

EXPORT result_t nvmlDeviceGetCount_v2(unsigned *count)
{
	struct cards cards;
	result_t result = door_cards(&cards);
	return result ? result : give((unsigned)cards.count, count);
}

EXPORT result_t nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device)
{
	struct cards cards;
	result_t result = door_cards(&cards);
	if (result)
		return result;
	if (index >= cards.count || !device)
		return INVALID_ARGUMENT;
	return hand_out(&cards.card[index], __func__, device);
}

EXPORT result_t nvmlDeviceGetHandleByUUID(const char *uuid, device_t *device)
{
	struct cards cards;
	result_t result = door_cards(&cards);
	if (result)
		return result;
	if (!uuid || !device)
		return INVALID_ARGUMENT;
	for (size_t i = 0; i < cards.count; i++)
		if (!strcasecmp(cards.card[i].uuid, uuid))
			return hand_out(&cards.card[i], __func__, device);
	return NOT_FOUND;
}

EXPORT result_t nvmlDeviceGetHandleByPciBusId_v2(const char *address, device_t *device)
{
	struct cards cards;
	unsigned domain = 0, bus, slot;
	result_t result = door_cards(&cards);
	if (result)
		return result;
	if (!address || !device ||
	    (sscanf(address, "%x:%x:%x", &domain, &bus, &slot) != 3 && sscanf(address, "%x:%x", &bus, &slot) != 2))
		return INVALID_ARGUMENT;
	for (size_t i = 0; i < cards.count; i++)
		if (cards.card[i].domain == domain && cards.card[i].bus == bus && cards.card[i].slot == slot)
			return hand_out(&cards.card[i], __func__, device);
	return NOT_FOUND;
}

EXPORT result_t nvmlDeviceGetIndex(device_t device, unsigned *index)
{
	struct cards cards;
	OPEN(device);
	result_t result = door_cards(&cards);
	for (size_t i = 0; !result && i < cards.count; i++)
		if (!strcmp(cards.card[i].uuid, card.uuid))
			return give((unsigned)i, index);
	return result ? result : GPU_IS_LOST;
}

EXPORT result_t nvmlDeviceGetUUID(device_t device, char *uuid, unsigned size)
{
	OPEN(device);
	return give_text(card.uuid, uuid, size);
}

EXPORT result_t nvmlDeviceGetName(device_t device, char *name, unsigned size)
{
	OPEN(device);
	return give_text(card.name, name, size);
}

EXPORT result_t nvmlDeviceGetMinorNumber(device_t device, unsigned *minor)
{
	OPEN(device);
	return give(card.minor, minor);
}

EXPORT result_t nvmlDeviceGetModuleId(device_t device, unsigned *module)
{
	OPEN(device);
	return give(card.module, module);
}

EXPORT result_t nvmlDeviceGetArchitecture(device_t device, unsigned *arch)
{
	OPEN(device);
	return give(card.arch, arch);
}

EXPORT result_t nvmlDeviceGetBrand(device_t device, unsigned *brand)
{
	OPEN(device);
	return give(card.brand, brand);
}

EXPORT result_t nvmlDeviceGetCudaComputeCapability(device_t device, int *major, int *minor)
{
	OPEN(device);
	if (!major || !minor)
		return INVALID_ARGUMENT;
	*major = (int)card.cc_major;
	*minor = (int)card.cc_minor;
	return OK;
}

EXPORT result_t nvmlDeviceGetPciInfo_v3(device_t device, pci_info_t *info)
{
	OPEN(device);
	if (!info)
		return INVALID_ARGUMENT;
	*info = (pci_info_t){
		.domain = card.domain, .bus = card.bus, .device = card.slot,
		.device_id = 0x233010de, .subsystem_id = 0x16c110de,
	};
	snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", card.domain, card.bus, card.slot);
	snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0", card.domain & 0xffff, card.bus,
		 card.slot);
	return OK;
}

EXPORT result_t nvmlDeviceGetAddressingMode(device_t device, addressing_mode_t *mode)
{
	OPEN(device);
	if (!mode)
		return INVALID_ARGUMENT;
	if (mode->version != VERSION(addressing_mode_t, 1))
		return ARGUMENT_VERSION_MISMATCH;
	mode->value = 1; /* heterogeneous memory management, as on a PCIe card */
	return OK;
}

EXPORT result_t nvmlDeviceGetPersistenceMode(device_t device, unsigned *mode)
{
	OPEN(device);
	return give(1, mode);
}
