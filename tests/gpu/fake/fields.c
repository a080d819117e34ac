/* Values that have a number instead of a call of their own. */

#include "fake.h"

#include <string.h>

typedef struct {
    unsigned id, scope; int64_t at, latency; int type, error;
    union { int small; uint64_t large; } value;
} Field;

static int field(Gpu *gpu, Field *out) {
    int hbm = profile() != RTX4080, offsets = profile() != A100;
    memset(&out->value, 0xAA, sizeof out->value);
    out->type = out->id >= 193 && out->id <= 196 ? SIGNED_INT : UNSIGNED_INT;
    switch (out->id) {
    case 82: out->value.small = 60 + gpu->number; return hbm ? OK : NOT_SUPPORTED;
    case 186: out->value.small = 310000 + 1000 * gpu->number; return OK;
    case 193: out->value.small = -8; return offsets ? OK : NOT_SUPPORTED;
    case 194: out->value.small = -2; return offsets ? OK : NOT_SUPPORTED;
    case 196: out->value.small = 0; return offsets ? OK : NOT_SUPPORTED;
    default: return NOT_SUPPORTED;
    }
}

int nvmlDeviceGetFieldValues(Gpu *gpu, int count, Field *out) {
    DEVICE("GetFieldValues");
    for (int n = 0; n < count; n++) out[n].error = field(gpu, &out[n]);
    return OK;
}
