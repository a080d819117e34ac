/* Counters of the parts of a GPU, which Hopper and later have. */

#include "fake.h"

#include <stdlib.h>
#include <string.h>

typedef struct { const Gpu *gpu; unsigned gi; uint64_t at; } Sample;
typedef struct { unsigned id, error; double value; const char *texts[3]; } Metric;
typedef struct { unsigned version, count; const Sample *older, *newer; Metric metrics[]; } Question;
typedef struct { unsigned version, supported; } Support;

enum { NO_INSTANCE = ~0u, NO_DATA = 21, WRONG_VERSION = 25, LEAST_US = 100000, RATES = 20 };

static int counted(void) { return profile() == H200 || profile() == B200; }

int nvmlGpmQueryDeviceSupport(Gpu *gpu, Support *out) {
    DEVICE("GpmQueryDeviceSupport");
    if (out->version != 1) return WRONG_VERSION;
    out->supported = counted();
    return OK;
}
int nvmlGpmSampleAlloc(Sample **out) {
    SYSTEM("GpmSampleAlloc");
    *out = calloc(1, sizeof **out);
    return OK;
}
int nvmlGpmSampleFree(Sample *sample) {
    SYSTEM("GpmSampleFree");
    free(sample);
    return OK;
}
int nvmlGpmSampleGet(Gpu *gpu, Sample *sample) {
    DEVICE("GpmSampleGet");
    if (!counted() || split(gpu)) return NOT_SUPPORTED;
    *sample = (Sample){gpu, NO_INSTANCE, clock_us()};
    return OK;
}
int nvmlGpmMigSampleGet(Gpu *gpu, unsigned gi, Sample *sample) {
    DEVICE("GpmMigSampleGet");
    if (!counted()) return NOT_SUPPORTED;
    if (!has_instance(gpu, gi)) return INVALID;
    *sample = (Sample){gpu, gi, clock_us()};
    return OK;
}

/* The value of a line "key=ID:value". */
static double told(const char *key, unsigned id, double otherwise) {
    char text[64];
    for (int n = 0; value(key, n, text); n++)
        if ((unsigned)atoi(text) == id) return strtod(strchr(text, ':') + 1, NULL);
    return otherwise;
}

/* In percent its number, that of the GPU and that of the instance together; rates ten times as much in MiB/s. */
static double usual(const Sample *sample, unsigned id) {
    double sum = id + sample->gpu->number + (sample->gi == NO_INSTANCE ? 0 : sample->gi);
    return id < RATES ? sum : 10 * sum;
}

int nvmlGpmMetricsGet(Question *question) {
    SYSTEM("GpmMetricsGet");
    const Sample *older = question->older, *newer = question->newer;
    if (question->version != 1) return WRONG_VERSION;
    if (!older || !newer || !older->at || older->gpu != newer->gpu || older->gi != newer->gi) return INVALID;
    if (newer->at < older->at + LEAST_US) return NO_DATA;
    note("GpmWindow", (newer->at - older->at) / 1000);
    for (Metric *metric = question->metrics; metric < question->metrics + question->count; metric++) {
        metric->error = told("gpmerror", metric->id, OK);
        metric->value = told("gpm", metric->id, usual(newer, metric->id));
    }
    return OK;
}
