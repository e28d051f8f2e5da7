/* A CUDA program for containers without any library: `mps-program MIB` takes so much memory, says what it got and under
 * which limits, and ends. */
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned);
int cuCtxCreate_v2(void **, unsigned, int);
int cuMemAlloc_v2(void **, size_t);
int fake_limits(unsigned long long *);

int main(int argc, char **argv)
{
	unsigned long long memory = 0;
	void *place;
	int refused = cuInit(0);
	if (!refused)
		refused = cuCtxCreate_v2(&place, 0, 0);
	if (!refused)
		refused = cuMemAlloc_v2(&place, strtoull(argc > 1 ? argv[1] : "1", NULL, 10) << 20);
	int cores = fake_limits(&memory);
	printf("%s, limits %d %% %llu MiB\n", refused == 2 ? "refused" : refused ? "failed" : "taken", cores, memory);
	return 0;
}
