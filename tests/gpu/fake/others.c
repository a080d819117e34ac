/* What only others ask for. */

#include "fake.h"

#define CONSTANT(name, type, number) \
    int nvmlDeviceGet##name(Gpu *gpu, type *out) { DEVICE("Get" #name); *out = number; return OK; }
CONSTANT(DisplayActive, int, 0)
CONSTANT(DisplayMode, int, 0)
CONSTANT(MinorNumber, unsigned, gpu->number)
CONSTANT(MaxMigDeviceCount, unsigned, 0)

typedef struct { uint64_t total, free, used; } Bar1;

int nvmlDeviceGetBAR1MemoryInfo(Gpu *gpu, Bar1 *out) {
    DEVICE("GetBAR1MemoryInfo");
    *out = (Bar1){1ull << 37, 1ull << 36, 1ull << 36};
    return OK;
}

#define PROCESSES(name) \
    int nvmlDeviceGet##name##RunningProcesses_v3(Gpu *gpu, unsigned *count, void *out) { \
        DEVICE("Get" #name "RunningProcesses"); (void)out; *count = 0; return OK; }
PROCESSES(Compute)
PROCESSES(Graphics)
PROCESSES(MPSCompute)

int nvmlDeviceGetProcessUtilization(Gpu *gpu, void *out, unsigned *count, uint64_t after) {
    DEVICE("GetProcessUtilization");
    (void)out, (void)after;
    *count = 0;
    return NOT_FOUND;
}
