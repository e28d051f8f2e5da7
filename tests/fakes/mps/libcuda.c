/* Stands in for libcuda.so.1 where MPS is tried: a program that makes a context becomes a client of the daemon behind
 * $CUDA_MPS_PIPE_DIRECTORY/control, and gets no more memory than its namespace, or its own environment, allows.
 * Without a daemon it runs without limits, as the real one does on a card in the mode DEFAULT. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { OK = 0, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, FAILED = 999 };

static unsigned long long limit_mib, taken;
static int initialised, percent = 100;

int cuInit(unsigned flags)
{
	(void)flags;
	initialised = 1;
	return OK;
}

static int join(const char *directory)
{
	struct sockaddr_un where = {.sun_family = AF_UNIX};
	char line[64] = "";
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if ((size_t)snprintf(where.sun_path, sizeof where.sun_path, "%s/control", directory) >= sizeof where.sun_path)
		return FAILED;
	if (connect(fd, (struct sockaddr *)&where, sizeof where))
		return close(fd), OK;
	dprintf(fd, "client %d\n", getpid());
	for (size_t got = 0; got < sizeof line - 1 && !strchr(line, '\n');) {
		ssize_t more = read(fd, line + got, sizeof line - 1 - got);
		if (more <= 0)
			return FAILED;
		got += (size_t)more;
	}
	return sscanf(line, "ok %d %llu", &percent, &limit_mib) == 2 ? OK : FAILED; /* it stays open: so long it is a client */
}

int cuCtxCreate_v2(void **context, unsigned flags, int device)
{
	const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY"), *own = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
	unsigned long long wanted;
	(void)flags, (void)device;
	if (!initialised)
		return NOT_INITIALIZED;
	if (directory && join(directory))
		return FAILED;
	if (own && sscanf(own, "0=%lluM", &wanted) == 1 && (!limit_mib || wanted < limit_mib))
		limit_mib = wanted;
	*context = &initialised;
	return OK;
}

int cuMemAlloc_v2(void **memory, size_t size)
{
	if (limit_mib && taken + size > limit_mib << 20)
		return OUT_OF_MEMORY;
	taken += size;
	*memory = &taken;
	return OK;
}

int fake_limits(unsigned long long *memory_mib)
{
	const char *own = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
	*memory_mib = limit_mib;
	return own && atoi(own) < percent ? atoi(own) : percent;
}

int cuModuleLoadData(void **module, const void *image)
{
	*module = &taken;
	return image ? OK : FAILED;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
	*function = module;
	return name ? OK : FAILED;
}

int cuLaunchKernel(void)
{
	return OK;
}

int cuCtxSynchronize(void)
{
	return OK;
}
