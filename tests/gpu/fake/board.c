/* What a GPU is and does. */

#include "fake.h"

#include <string.h>

int nvmlDeviceGetUUID(Gpu *gpu, char *out, unsigned size) {
    DEVICE("GetUUID");
    if (gpu->instance) return instance_uuid(gpu, out, size);
    return text(out, size, "GPU-00000000-0000-0000-0000-0000000000%02d", gpu->number);
}
int nvmlDeviceGetIndex(Gpu *gpu, unsigned *out) { DEVICE("GetIndex"); *out = gpu->number; return OK; }
int nvmlDeviceGetName(Gpu *gpu, char *out, unsigned size) {
    DEVICE("GetName");
    const char *names[] = {"NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4080", "NVIDIA B200"};
    if (gpu->instance) return instance_name(gpu, names[profile()], out, size);
    return text(out, size, names[profile()]);
}
int nvmlDeviceGetVbiosVersion(Gpu *gpu, char *out, unsigned size) {
    DEVICE("GetVbiosVersion");
    return text(out, size, "96.00.A5.00.01");
}
int nvmlDeviceGetSerial(Gpu *gpu, char *out, unsigned size) {
    DEVICE("GetSerial");
    return profile() == RTX4080 ? NOT_SUPPORTED : text(out, size, "16500000000%02d", gpu->number);
}
int nvmlDeviceGetArchitecture(Gpu *gpu, unsigned *out) {
    DEVICE("GetArchitecture");
    *out = (unsigned[]){9, 7, 8, 10}[profile()];
    return OK;
}
int nvmlDeviceGetCudaComputeCapability(Gpu *gpu, int *major, int *minor) {
    DEVICE("GetCudaComputeCapability");
    *major = (int[]){9, 8, 8, 10}[profile()];
    *minor = (int[]){0, 0, 9, 0}[profile()];
    return OK;
}

typedef struct { char old[16]; unsigned domain, bus, device, id, subsystem; char busId[32]; } Pci;

int nvmlDeviceGetPciInfo_v3(Gpu *gpu, Pci *out) {
    DEVICE("GetPciInfo");
    memset(out, 0, sizeof *out);
    out->bus = 16 * gpu->number;
    return text(out->busId, sizeof out->busId, "00000000:%02X:00.0", out->bus);
}

typedef struct { unsigned gpu, memory; } Utilization;

int nvmlDeviceGetUtilizationRates(Gpu *gpu, Utilization *out) {
    DEVICE("GetUtilizationRates");
    if (split(gpu)) return NOT_SUPPORTED;
    out->gpu = number("util", 40 + gpu->number);
    out->memory = 30;
    return OK;
}

typedef struct { uint64_t at; union { unsigned small; uint64_t large; } value; } Sample;

/* A sample each 100 ms, the last 10 are kept; one of them is 20 above the usual. */
int nvmlDeviceGetSamples(Gpu *gpu, int kind, uint64_t after, int *type, unsigned *count, Sample *out) {
    DEVICE("GetSamples");
    uint64_t last = clock_us() / 100000, first = last - 9;
    (void)kind;
    if (split(gpu)) return NOT_SUPPORTED;
    if (first <= after / 100000) first = after / 100000 + 1;
    if (first > last) return NOT_FOUND;
    *type = U32;
    unsigned have = last - first + 1;
    if (!out) { *count = have; return OK; }
    for (unsigned n = 0; n < have && n < *count; n++) {
        memset(&out[n], 0xAA, sizeof out[n]);
        out[n].at = (first + n) * 100000;
        out[n].value.small = number("util", 40 + gpu->number) + number("odd", 20) * (n == 0);
    }
    if (have < *count) *count = have;
    return OK;
}

typedef struct { unsigned version; uint64_t total, reserved, free, used; } Memory2;
typedef struct { uint64_t total, free, used; } Memory1;

static const uint64_t reserved = 643825664;

/* What a board has and what is in use, or an instance of it. */
static int memory(Gpu *gpu, uint64_t *total, uint64_t *used) {
    if (gpu->instance) return instance_memory(gpu, total, used);
    if (split(gpu) && number("unprivileged", 0)) return NO_PERMISSION;
    *total = (uint64_t[]){150754820096, 85899345920, 17171480576, 192265846784}[profile()];
    *used = (10ull + gpu->number) << 30;
    return OK;
}

int nvmlDeviceGetMemoryInfo_v2(Gpu *gpu, Memory2 *out) {
    DEVICE("GetMemoryInfo");
    uint64_t total, used;
    if (out->version != 0x2000028) return 25;
    int error = memory(gpu, &total, &used);
    if (!error) *out = (Memory2){out->version, total, reserved, total - reserved - used, used};
    return error;
}
int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory1 *out) {
    DEVICE("GetMemoryInfo");
    uint64_t total, used;
    int error = memory(gpu, &total, &used);
    if (!error) *out = (Memory1){total, total - reserved - used, used + reserved};
    return error;
}

int nvmlDeviceGetPowerUsage(Gpu *gpu, unsigned *out) {
    DEVICE("GetPowerUsage");
    *out = number("power", 300000 + 1000 * gpu->number);
    return OK;
}
int nvmlDeviceGetEnforcedPowerLimit(Gpu *gpu, unsigned *out) {
    DEVICE("GetEnforcedPowerLimit");
    *out = 650000;
    return OK;
}
int nvmlDeviceGetPowerManagementLimit(Gpu *gpu, unsigned *out) {
    DEVICE("GetPowerManagementLimit");
    *out = 660000;
    return OK;
}
int nvmlDeviceGetPowerManagementDefaultLimit(Gpu *gpu, unsigned *out) {
    DEVICE("GetPowerManagementDefaultLimit");
    *out = 700000;
    return OK;
}
int nvmlDeviceGetPowerManagementLimitConstraints(Gpu *gpu, unsigned *least, unsigned *most) {
    DEVICE("GetPowerManagementLimitConstraints");
    *least = 200000;
    *most = 700000;
    return OK;
}
int nvmlDeviceGetTotalEnergyConsumption(Gpu *gpu, uint64_t *out) {
    DEVICE("GetTotalEnergyConsumption");
    *out = number("energy", 5000000000000 + gpu->number);
    return OK;
}

typedef struct { unsigned version, sensor; int celsius; } Temperature;

int nvmlDeviceGetTemperatureV(Gpu *gpu, Temperature *out) {
    DEVICE("GetTemperatureV");
    if (out->version != 0x100000c) return 25;
    out->celsius = 50 + gpu->number;
    return OK;
}
int nvmlDeviceGetTemperature(Gpu *gpu, int sensor, unsigned *out) {
    DEVICE("GetTemperature");
    (void)sensor;
    *out = 50 + gpu->number;
    return OK;
}
int nvmlDeviceGetTemperatureThreshold(Gpu *gpu, unsigned kind, unsigned *out) {
    DEVICE("GetTemperatureThreshold");
    if (profile() != A100 || kind > 3) return NOT_SUPPORTED;
    *out = (unsigned[]){92, 89, 95, 85}[kind];
    return OK;
}

typedef struct { unsigned version; int celsius; } Margin;

int nvmlDeviceGetMarginTemperature(Gpu *gpu, Margin *out) {
    DEVICE("GetMarginTemperature");
    if (profile() == A100) return NOT_SUPPORTED;
    out->celsius = number("margin", 37 - gpu->number);
    return OK;
}
int nvmlDeviceGetClockInfo(Gpu *gpu, int domain, unsigned *out) {
    DEVICE("GetClockInfo");
    *out = (unsigned[]){1700, 1710, 3200, 1500}[domain];
    return OK;
}
int nvmlDeviceGetMaxClockInfo(Gpu *gpu, int domain, unsigned *out) {
    DEVICE("GetMaxClockInfo");
    if (domain == 3 && profile() == RTX4080) return NOT_SUPPORTED;
    *out = (unsigned[]){1980, 1981, 3201, 1545}[domain];
    return OK;
}
