/* Values that have a number instead of a call of their own. */

#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    unsigned id, scope; int64_t at, latency; int type, error;
    union { double real; unsigned u32; int s32; uint64_t u64; int64_t s64; unsigned short u16; } value;
} Field;

typedef struct { unsigned id; int type, on; double first, step; } Row;

enum { SECOND = 1000000000 };

/* Value of GPU 0, and by how much that of the next GPU is more. Most are 100 x number + GPU. */
static const Row ROWS[] = {
    {3, U64, ECC, 300, 1}, {4, U64, ECC, 400, 1}, {5, U64, ECC, 500, 1}, {6, U64, ECC, 600, 1},
    {38, U64, NVLINK, 3800, 1}, {45, U64, NVLINK, 4500, 1}, {52, U64, NVLINK, 5200, 1},
    {59, U64, NVLINK, 5900, 1}, {160, U64, NVLINK, 16000, 1},
    {74, U64, ANY, 7400e9, SECOND}, {75, U64, ANY, 7500e9, SECOND}, {76, U64, ANY, 7600e9, SECOND},
    {82, U32, HBM, 60, 1},
    {94, U32, ANY, 9400, 1},
    {138, U64, NVLINK, 13800, 1}, {139, U64, NVLINK, 13900, 1},
    {142, U32, HBM, 14200, 1}, {143, U32, HBM, 14300, 1}, {144, U32, HBM, 1, 0}, {145, U32, HBM, 0, 0},
    {161, U64, NVLINK, 16100, 1}, {162, U64, NVLINK, 16200, 1}, {163, U64, NVLINK, 16300, 1},
    {186, U32, ANY, 310000, 1000},
    {193, S32, OFFSETS, -8, 0}, {194, S32, OFFSETS, -2, 0}, {196, S32, OFFSETS, 0, 0},
    {202, U64, NVLINK5, 20200, 1}, {204, U64, NVLINK5, 20400, 1},
    {206, U64, NVLINK5, 20600, 1}, {207, U64, NVLINK5, 20700, 1}, {208, U64, NVLINK5, 20800, 1},
    {209, U64, NVLINK5, 20900, 1}, {210, U64, NVLINK5, 21000, 1}, {211, U64, NVLINK5, 21100, 1},
    {212, U64, NVLINK5, 21200, 1}, {214, U64, NVLINK5, 21400, 1}, {215, U64, NVLINK5, 21500, 1},
    {221, U64, NVLINK5, 22100, 1},
    {230, U32, HBM, 0, 0},
};

/* How many numbers a driver knows, and where those for kinds of throttling begin. */
static unsigned known(void) {
    int version = driver();
    return version < 550000 ? 197 : version < 570000 ? 226 : version < 575000 ? 269 : version < 590000 ? 274 : 289;
}
static unsigned kinds(void) {
    return driver() < 575000 ? 0 : driver() <= 580065 ? 251 : 269;
}

static void set(Field *out, int type, const char *number) {
    memset(&out->value, 0xAA, sizeof out->value);
    out->type = type;
    switch (type) {
    case 0: out->value.real = strtod(number, NULL); break;
    case U32: out->value.u32 = strtoull(number, NULL, 10); break;
    case S32: out->value.s32 = strtol(number, NULL, 10); break;
    case 6: out->value.u16 = strtoul(number, NULL, 10); break;
    case 4: out->value.s64 = strtoll(number, NULL, 10); break;
    default: out->value.u64 = strtoull(number, NULL, 10);
    }
}

/* The rest of a line "key=ID:rest" of this field. */
static int told(const char *key, unsigned id, char rest[64]) {
    char line[64], *colon;
    for (int n = 0; value(key, n, line); n++)
        if (strtoul(line, &colon, 10) == id && *colon == ':') return strcpy(rest, colon + 1) != NULL;
    return 0;
}

static int set_number(Field *out, int type, double number) {
    char digits[64];
    snprintf(digits, sizeof digits, "%.0f", number);
    set(out, type, digits);
    return OK;
}

static int field(Gpu *gpu, Field *out) {
    char line[64], *colon;
    unsigned first = kinds();
    if (told("refuse", out->id, line)) return atoi(line);
    if (told("field", out->id, line)) {
        int type = strtol(line, &colon, 10);
        set(out, type, colon + 1);
        return OK;
    }
    if (out->id >= known()) return INVALID;
    if (first && out->id >= first && out->id < first + 3)
        return set_number(out, U64, (1000.0 * (out->id - first + 1) + gpu->number) * SECOND);
    if (out->id > 250) return set_number(out, U64, 77e9); /* power smoothing, which looks as good */
    if (split(gpu) && (out->id == 4 || out->id == 6 || out->id == 142 || out->id == 143)) return NOT_SUPPORTED;
    if (out->id == 91 && has(NVLINKS)) return set_number(out, U32, profile() == A100 ? 12 : 18);
    for (unsigned n = 0; n < sizeof ROWS / sizeof *ROWS; n++)
        if (ROWS[n].id == out->id && has(ROWS[n].on)) {
            double link = out->scope == ~0u ? 0 : out->scope * 100000.0;
            return set_number(out, ROWS[n].type, ROWS[n].first + ROWS[n].step * gpu->number + link);
        }
    return NOT_SUPPORTED;
}

int nvmlDeviceGetFieldValues(Gpu *gpu, int count, Field *out) {
    DEVICE("GetFieldValues");
    if (count < 1) return INVALID;
    for (int n = 0; n < count; n++) {
        char nothing[64];
        if (told("untouched", out[n].id, nothing)) continue;
        out[n].latency = number("latency", 40);
        out[n].error = field(gpu, &out[n]);
    }
    return OK;
}
