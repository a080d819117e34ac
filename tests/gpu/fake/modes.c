/* How a GPU is set, what its engines do, and its PCIe link. */

#include "fake.h"

#define ASKED(name, type, where, number) \
    int nvmlDeviceGet##name(Gpu *gpu, type *out) { \
        DEVICE("Get" #name); \
        if (!(where)) return NOT_SUPPORTED; \
        *out = number; \
        return OK; \
    }
ASKED(PerformanceState, int, 1, 2)
ASKED(PersistenceMode, int, 1, 1)
ASKED(ComputeMode, int, 1, 3)
ASKED(NumFans, unsigned, 1, profile() == RTX4080 ? 2 : 0)
ASKED(FanSpeed, unsigned, profile() == RTX4080, 30)
ASKED(MaxPcieLinkGeneration, unsigned, 1, 5)
ASKED(CurrPcieLinkGeneration, unsigned, 1, 4)
ASKED(MaxPcieLinkWidth, unsigned, 1, 16)
ASKED(CurrPcieLinkWidth, unsigned, 1, 8)
ASKED(CurrentClocksEventReasons, uint64_t, 1, number("reasons", 4))

int nvmlDeviceGetCurrentClocksThrottleReasons(Gpu *gpu, uint64_t *out) {
    return nvmlDeviceGetCurrentClocksEventReasons(gpu, out);
}

/* What is now, and what will be after a reset. */
#define PAIR(name, where, now, later) \
    int nvmlDeviceGet##name(Gpu *gpu, unsigned *one, unsigned *two) { \
        DEVICE("Get" #name); \
        if (!(where)) return NOT_SUPPORTED; \
        *one = now; \
        *two = later; \
        return OK; \
    }
PAIR(EccMode, has(ECC), 1, 0)

/* Percent, and the microseconds that they are of. */
PAIR(EncoderUtilization, !split(gpu), 11, 166000)
PAIR(DecoderUtilization, !split(gpu), 12, 166000)
PAIR(JpgUtilization, !split(gpu) && profile() != RTX4080, 13, 166000)
PAIR(OfaUtilization, !split(gpu), 14, 166000)

int nvmlDeviceGetFanSpeed_v2(Gpu *gpu, unsigned fan, unsigned *out) {
    DEVICE("GetFanSpeed");
    if (profile() != RTX4080) return NOT_SUPPORTED;
    *out = (unsigned[]){30, 110}[fan];
    return OK;
}

/* The real one blocks for 20 ms; here driver calls cost nothing, for everybody. */
int nvmlDeviceGetPcieThroughput(Gpu *gpu, int direction, unsigned *out) {
    DEVICE("GetPcieThroughput");
    *out = 1000 * (direction + 1) + gpu->number;
    return OK;
}
