/* What only others ask for. */

#include "fake.h"

#define CONSTANT(name, type, number) \
    int nvmlDeviceGet##name(Gpu *gpu, type *out) { DEVICE("Get" #name); *out = number; return OK; }
CONSTANT(DisplayActive, int, 0)
CONSTANT(DisplayMode, int, 0)
CONSTANT(MinorNumber, unsigned, gpu->number)

typedef struct { uint64_t total, free, used; } Bar1;

int nvmlDeviceGetBAR1MemoryInfo(Gpu *gpu, Bar1 *out) {
    DEVICE("GetBAR1MemoryInfo");
    *out = (Bar1){1ull << 37, 1ull << 36, 1ull << 36};
    return OK;
}
