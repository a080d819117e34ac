/* The instances that a GPU is split into. */

#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_INSTANCES = 7, FIRST_GI = 7 };

/* Its number among those of the GPU, and the line that told of it when its handle was given. */
struct Instance { unsigned number, gi, ci; char profile[16], line[64]; };

static Instance instances[MOST_GPUS][MOST_INSTANCES];
static Gpu handles[MOST_GPUS][MOST_INSTANCES];

void forget_instances(void) { memset(instances, 0, sizeof instances); }

static int all_split(void) {
    char text[64];
    return value("profile", 0, text) && !strcmp(text, "a100-mig");
}

int split(const Gpu *gpu) {
    char text[64];
    for (int n = 0; value("mig", n, text); n++)
        if (atoi(text) == gpu->number) return 1;
    return all_split();
}

/* What is told of an instance now. */
static int told(int gpu, unsigned number, Instance *out) {
    unsigned at;
    int known = 0;
    for (int n = 0; value("instance", n, out->line); n++, known |= at == (unsigned)gpu)
        if (sscanf(out->line, "%u:%u:%u:%u:%15s", &at, &out->number, &out->gi, &out->ci, out->profile) == 5
            && at == (unsigned)gpu && out->number == number) return 1;
    if (known || !all_split()) return 0;
    *out = (Instance){number, FIRST_GI + number, 0, "1g.10gb", "all"};
    return 1;
}

int has_instance(const Gpu *gpu, unsigned gi) {
    Instance found;
    for (unsigned number = 0; number < MOST_INSTANCES; number++)
        if (told(gpu->number, number, &found) && found.gi == gi) return split(gpu);
    return 0;
}

static int is_void(const Gpu *gpu) {
    Instance now;
    return !split(gpu) || !told(gpu->number, gpu->instance->number, &now) || strcmp(now.line, gpu->instance->line);
}

int nvmlDeviceGetMigMode(Gpu *gpu, unsigned *current, unsigned *pending) {
    DEVICE("GetMigMode");
    if (profile() == RTX4080) return NOT_SUPPORTED;
    *current = *pending = split(gpu);
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(Gpu *gpu, unsigned *out) {
    DEVICE("GetMaxMigDeviceCount");
    *out = split(gpu) ? MOST_INSTANCES : 0;
    return OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Gpu *gpu, unsigned index, Gpu **out) {
    DEVICE("GetMigDeviceHandleByIndex");
    if (!split(gpu) || index >= MOST_INSTANCES) return NOT_FOUND;
    Instance *known = &instances[gpu->number][index];
    if (!known->line[0] && !told(gpu->number, index, known)) { known->line[0] = 0; return NOT_FOUND; }
    handles[gpu->number][index] = (Gpu){gpu->number, known};
    *out = &handles[gpu->number][index];
    return OK;
}

#define OF_INSTANCE(name, member) \
    int nvmlDeviceGet##name(Gpu *gpu, unsigned *out) { \
        DEVICE("Get" #name); \
        if (!gpu->instance || is_void(gpu)) return INVALID; \
        *out = gpu->instance->member; \
        return OK; }
OF_INSTANCE(GpuInstanceId, gi)
OF_INSTANCE(ComputeInstanceId, ci)

int instance_name(const Gpu *gpu, const char *board, char *out, unsigned size) {
    return is_void(gpu) ? INVALID : text(out, size, "%s MIG %s", board, gpu->instance->profile);
}
int instance_uuid(const Gpu *gpu, char *out, unsigned size) {
    if (is_void(gpu)) return INVALID;
    return text(out, size, "MIG-00000000-0000-0000-%04u-%010u%02d",
                gpu->instance->ci, gpu->instance->gi, gpu->number);
}

/* The profile's: 18 GiB of 1g.18gb, of which an instance uses as many as its number says. */
int instance_memory(const Gpu *gpu, uint64_t *total, uint64_t *used) {
    if (is_void(gpu)) return INVALID;
    *total = strtoull(strchr(gpu->instance->profile, 'g') + 2, NULL, 10) << 30;
    *used = (uint64_t)gpu->instance->gi << 30;
    return OK;
}
