/* NVLink and the fabric. */

#include "fake.h"

#include <string.h>

int nvmlDeviceGetNvLinkState(Gpu *gpu, unsigned link, unsigned *out) {
    DEVICE("GetNvLinkState");
    if (!has(NVLINKS)) return NOT_SUPPORTED;
    *out = link >= (unsigned)number("down", 0);
    return OK;
}

typedef struct { unsigned char cluster[16]; unsigned status, clique, state; } Fabric;
typedef struct { unsigned version; Fabric info; unsigned health; } Fabric2;

int nvmlDeviceGetGpuFabricInfo(Gpu *gpu, Fabric *out) {
    DEVICE("GetGpuFabricInfo");
    if (!has(FABRIC)) return NOT_SUPPORTED;
    memset(out, 0xAA, sizeof *out);
    out->state = number("fabric", 3);
    return OK;
}
int nvmlDeviceGetGpuFabricInfoV(Gpu *gpu, Fabric2 *out) {
    if (out->version != 0x2000024) return 25;
    return nvmlDeviceGetGpuFabricInfo(gpu, &out->info);
}
