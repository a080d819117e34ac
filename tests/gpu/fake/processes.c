/* Who uses a GPU. */

#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PROCESSES = 4096, CROWD = 5000000, MIB = 1 << 20 };

typedef struct { int gpu; char type[16]; unsigned pid; long mebibytes; unsigned percent; } Process;
typedef struct { unsigned pid; uint64_t memory; unsigned gi, ci; } Info;
typedef struct { Info info; uint64_t protected; } WideInfo;

/* The n-th process of a kind; any kind if NULL. */
static int process(const Gpu *gpu, const char *type, int n, Process *out) {
    char line[64];
    for (int at = 0; value("process", at, line); at++)
        if (sscanf(line, "%d:%15[a-z]:%u:%ld:%u", &out->gpu, out->type, &out->pid, &out->mebibytes, &out->percent) == 5
            && out->gpu == gpu->number && (!type || !strcmp(type, out->type)) && !n--) return 1;
    if (type && strcmp(type, "compute")) return 0;
    for (int at = 0; value("crowd", at, line); at++)
        if (atoi(line) == gpu->number && n < atoi(strchr(line, ':') + 1)) {
            *out = (Process){gpu->number, "compute", CROWD + n, 1, 0};
            return 1;
        }
    return 0;
}

/* Has a list grown since its length was told? */
static int grown(void) {
    static int times;
    return times < number("growing", 0) && ++times;
}

/* The newest call of drivers 535 before 535.104 fills larger structures. */
static int wide(void) { return driver() >= 535000 && driver() < 535104; }

static int list(const Gpu *gpu, const char *type, unsigned *room, void *out, int wide) {
    Process one;
    int have = 0;
    if (split(gpu) && number("unprivileged", 0)) return NO_PERMISSION;
    while (process(gpu, type, have, &one)) {
        if (out && have < (int)*room) {
            uint64_t memory = one.mebibytes < 0 ? ~0ull : (uint64_t)one.mebibytes * MIB;
            Info info = {one.pid, memory, ~0u, ~0u};
            if (wide) ((WideInfo *)out)[have] = (WideInfo){info, 0};
            else ((Info *)out)[have] = info;
        }
        have++;
    }
    int small = have > (int)*room || (out && grown());
    *room = have;
    return small ? SMALL : OK;
}

#define PROCESSES(name, type) \
    int nvmlDeviceGet##name##RunningProcesses_v3(Gpu *gpu, unsigned *room, void *out) { \
        DEVICE("Get" #name "RunningProcesses"); return list(gpu, type, room, out, wide()); } \
    int nvmlDeviceGet##name##RunningProcesses_v2(Gpu *gpu, unsigned *room, void *out) { \
        DEVICE("Get" #name "RunningProcesses"); return list(gpu, type, room, out, 0); }
PROCESSES(Compute, "compute")
PROCESSES(Graphics, "graphics")
PROCESSES(MPSCompute, "mps")

typedef struct { unsigned pid; uint64_t at; unsigned sm, memory, encoder, decoder; } Share;
typedef struct { uint64_t at; unsigned pid, sm, memory, encoder, decoder, jpeg, ofa; } NewShare;
typedef struct { unsigned version, room; uint64_t after; NewShare *out; } Question;

/* The n-th sample: of each process that did something the newest, then one before it that is 1 % less. */
static int share(const Gpu *gpu, int n, Share *out) {
    Process one;
    for (int at = 0, busy = n / 2; process(gpu, NULL, at, &one); at++)
        if (one.percent && !busy--) {
            uint64_t last = clock_us() / 100000 * 100000;
            *out = (Share){.pid = one.pid, .at = last - 50000 * (n % 2), .sm = one.percent - n % 2};
            return 1;
        }
    return 0;
}

static int shares(const Gpu *gpu, uint64_t after, unsigned *room, Share *out, NewShare *newer) {
    Share one;
    int have = 0, fits = out || newer;
    for (int n = 0; share(gpu, n, &one); n++) {
        if (one.at <= after) continue;
        if (have < (int)*room && out) out[have] = one;
        if (have < (int)*room && newer) newer[have] = (NewShare){.at = one.at, .pid = one.pid, .sm = one.sm};
        have++;
    }
    if (!have) return NOT_FOUND;
    int small = !fits || have > (int)*room || grown();
    *room = have;
    return small ? SMALL : OK;
}

int nvmlDeviceGetProcessUtilization(Gpu *gpu, Share *out, unsigned *room, uint64_t after) {
    DEVICE("GetProcessUtilization");
    return split(gpu) ? NOT_SUPPORTED : shares(gpu, after, room, out, NULL);
}
int nvmlDeviceGetProcessesUtilizationInfo(Gpu *gpu, Question *question) {
    DEVICE("GetProcessesUtilizationInfo");
    if (question->version != 0x1000018) return 25;
    return split(gpu) ? NOT_SUPPORTED : shares(gpu, question->after, &question->room, NULL, question->out);
}
