/* Calls about the library and the driver as a whole. */
#include <stdio.h>

#include "door.h"

EXPORT result_t nvmlInitWithFlags(unsigned)
{
	return door_init();
}

EXPORT result_t nvmlInit_v2(void)
{
	return door_init();
}

EXPORT result_t nvmlInit(void)
{
	return door_init();
}

EXPORT result_t nvmlShutdown(void)
{
	return door_shutdown();
}

EXPORT result_t nvmlSystemGetDriverVersion(char *version, unsigned size)
{
	struct cards cards;
	result_t result = door_cards(&cards);
	return result ? result : give_text(cards.driver, version, size);
}

/* The interface's own number goes with the CUDA version: 13.580.95.05 for driver 580.95.05 and CUDA 13. */
EXPORT result_t nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
	struct cards cards;
	char whole[VERSION_SIZE + 16];
	result_t result = door_cards(&cards);
	if (result)
		return result;
	snprintf(whole, sizeof whole, "%d.%s", cards.cuda / 1000, cards.driver);
	return give_text(whole, version, size);
}

EXPORT result_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	struct cards cards;
	result_t result = door_cards(&cards);
	if (result)
		return result;
	if (!version)
		return INVALID_ARGUMENT;
	*version = cards.cuda;
	return OK;
}

EXPORT result_t nvmlSystemGetCudaDriverVersion(int *version)
{
	return nvmlSystemGetCudaDriverVersion_v2(version);
}

EXPORT const char *nvmlErrorString(int code)
{
	static const char *const said[] = {
		[0] = "Success", [1] = "Uninitialized", [2] = "Invalid Argument", [3] = "Not Supported",
		[4] = "Insufficient Permissions", [5] = "Already Initialized", [6] = "Not Found",
		[7] = "Insufficient Size", [8] = "Insufficient External Power", [9] = "Driver Not Loaded",
		[10] = "Timeout", [11] = "Interrupt Request Issue", [12] = "NVML Shared Library Not Found",
		[13] = "Function Not Found", [14] = "Corrupted infoROM", [15] = "GPU is lost",
		[16] = "GPU requires reset", [17] = "Operating system blocked the request",
		[18] = "Driver/library version mismatch", [19] = "In use by another client",
		[20] = "Insufficient Memory", [21] = "No data", [23] = "Insufficient Resources",
		[25] = "Argument version mismatch", [26] = "Deprecated", [27] = "Not ready",
		[28] = "GPU not found", [29] = "Invalid state",
	};
	unsigned at = (unsigned)code;
	return at < sizeof said / sizeof *said && said[at] ? said[at] : "Unknown Error";
}
