/* Xid errors. */

#include "fake.h"

#include <stdlib.h>
#include <string.h>

static char last_xid[64];
typedef struct { Gpu *gpu; uint64_t type, data; unsigned gi, ci; } Event;
static uint64_t registered;

int nvmlEventSetCreate(void **out) { SYSTEM("EventSetCreate"); *out = &registered; return OK; }
int nvmlEventSetFree(void *set) { (void)set; SYSTEM("EventSetFree"); return OK; }
int nvmlDeviceRegisterEvents(Gpu *gpu, uint64_t types, void *set) {
    DEVICE("RegisterEvents");
    (void)set;
    if (types & 8) registered |= 1ull << gpu->number;
    return OK;
}

int nvmlEventSetWait_v2(void *set, Event *out, unsigned milliseconds) {
    SYSTEM("EventSetWait");
    (void)set;
    for (uint64_t until = clock_us() + milliseconds * 1000ull;; sleep_ms(200)) {
        char line[64];
        int fresh = value("xid", 0, line) && strcmp(line, last_xid);
        if (fresh && registered & 1ull << atoi(line)) {
            strcpy(last_xid, line);
            *out = (Event){&gpus[atoi(line)], 8, atoi(strchr(line, ':') + 1), ~0u, ~0u};
            return OK;
        }
        if (clock_us() >= until) return TIMEOUT;
    }
}
