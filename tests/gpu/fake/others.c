/* What only others ask for. */

#include "fake.h"

#define CONSTANT(name, type, number) \
    int nvmlDeviceGet##name(Gpu *gpu, type *out) { DEVICE("Get" #name); *out = number; return OK; }
CONSTANT(PerformanceState, int, 0)
CONSTANT(PersistenceMode, int, 1)
CONSTANT(ComputeMode, int, 0)
CONSTANT(DisplayActive, int, 0)
CONSTANT(DisplayMode, int, 0)
CONSTANT(FanSpeed, unsigned, 30)
CONSTANT(MinorNumber, unsigned, gpu->number)
CONSTANT(MaxPcieLinkGeneration, unsigned, 5)
CONSTANT(CurrPcieLinkGeneration, unsigned, 5)
CONSTANT(MaxPcieLinkWidth, unsigned, 16)
CONSTANT(CurrPcieLinkWidth, unsigned, 16)

#define PAIR(name) \
    int nvmlDeviceGet##name(Gpu *gpu, unsigned *one, unsigned *two) { \
        DEVICE("Get" #name); *one = *two = 0; return OK; }
PAIR(EccMode)
PAIR(EncoderUtilization)
PAIR(DecoderUtilization)

/* The real one blocks for 20 ms; here driver calls cost nothing, for everybody. */
int nvmlDeviceGetPcieThroughput(Gpu *gpu, int direction, unsigned *out) {
    DEVICE("GetPcieThroughput");
    (void)direction;
    *out = 1000;
    return OK;
}

typedef struct { uint64_t total, free, used; } Bar1;

int nvmlDeviceGetBAR1MemoryInfo(Gpu *gpu, Bar1 *out) {
    DEVICE("GetBAR1MemoryInfo");
    *out = (Bar1){1ull << 37, 1ull << 36, 1ull << 36};
    return OK;
}
