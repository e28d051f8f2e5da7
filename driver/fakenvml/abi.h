/* The part of the NVML interface that this library speaks: numbers, structs and their layouts.
 * Written from the layouts that nvidia-ml-py 13.615.71 uses; tests/driver/test_fakenvml.py asks through that. */
#ifndef FAKENVML_ABI_H
#define FAKENVML_ABI_H

#define EXPORT __attribute__((visibility("default")))

typedef enum {
	OK = 0,
	UNINITIALIZED = 1,
	INVALID_ARGUMENT = 2,
	NOT_SUPPORTED = 3,
	NO_PERMISSION = 4,
	NOT_FOUND = 6,
	INSUFFICIENT_SIZE = 7,
	DRIVER_NOT_LOADED = 9,
	TIMEOUT = 10,
	FUNCTION_NOT_FOUND = 13,
	GPU_IS_LOST = 15,
	OPERATING_SYSTEM = 17,
	LIB_RM_VERSION_MISMATCH = 18,
	MEMORY = 20,
	ARGUMENT_VERSION_MISMATCH = 25,
	UNKNOWN = 999,
} result_t;

typedef struct handle *device_t;
typedef struct event_set *event_set_t;

enum { UUID_SIZE = 96, NAME_SIZE = 96, VERSION_SIZE = 80 };

typedef struct {
	char bus_id_legacy[16];
	unsigned domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
} pci_info_t;

typedef struct {
	unsigned long long total, free, used;
} memory_t;

typedef struct {
	unsigned version;
	unsigned long long total, reserved, free, used;
} memory_v2_t;

typedef struct {
	unsigned gpu, memory;
} utilization_t;

typedef struct {
	unsigned pid;
	unsigned long long used_memory;
	unsigned gpu_instance, compute_instance;
} process_t;

typedef struct {
	unsigned pid;
	unsigned long long time;
	unsigned cores, memory, encoder, decoder;
} busy_t;

typedef struct {
	device_t device;
	unsigned long long type, data;
	unsigned gpu_instance, compute_instance;
} event_data_t;

typedef struct {
	unsigned version, value;
} addressing_mode_t;

typedef struct {
	unsigned version;
	unsigned char cluster[16];
	unsigned status, clique;
	unsigned char state;
	unsigned health_mask;
} fabric_v2_t;

typedef struct {
	unsigned char cluster[16];
	unsigned status, clique;
	unsigned char state;
} fabric_t;

typedef struct {
	const char *group; /* the full path of a control group */
	unsigned long long soft, hard;
} set_limits_t;

typedef struct {
	const char *group;
	unsigned long long soft, hard, used;
} get_limits_t;

#define NO_LIMIT 0xffffffffffffffffULL

/* the size and the number of a versioned struct, as callers write them into its first field */
#define VERSION(type, number) ((unsigned)(sizeof(type) | (number) << 24))

enum { EVENT_XID = 8 };
enum { NO_INSTANCE = 0xffffffff };

#endif
