/* The library itself, and who is there. */

#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As /dev/nvidiactl: open from before the first call until NVML is closed, and over an exec. */
static int device = -1;

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    note("InitWithFlags", -1);
    char path[512];
    snprintf(path, sizeof path, "%s/nvidiactl", getenv("FAKE_NVML_DEV"));
    if (device < 0) device = open(path, O_RDONLY | O_CREAT, 0644);
    initialized = 1;
    enter("Init", -1);
    int error = number("init", OK);
    initialized = !error;
    if (error && device >= 0) close(device), device = -1;
    for (int n = 0; n < MOST_GPUS; n++) gpus[n].number = n;
    return error;
}

int nvmlShutdown(void) {
    SYSTEM("Shutdown");
    initialized = 0;
    if (device >= 0) close(device), device = -1;
    forget_instances();
    for (int n = 0; n < MOST_GPUS; n++) gone(n);
    return OK;
}

const char *nvmlErrorString(int code) { return code == OK ? "Success" : "an error"; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    SYSTEM("SystemGetDriverVersion");
    char version[64];
    return text(out, size, "%s", value("driver", 0, version) ? version : DRIVER);
}
int nvmlSystemGetNVMLVersion(char *out, unsigned size) {
    SYSTEM("SystemGetNVMLVersion");
    char version[64];
    int told = value("driver", 0, version);
    return text(out, size, "%d.%s", driver() < 580000 ? 12 : 13, told ? version : DRIVER);
}
int nvmlSystemGetCudaDriverVersion(int *out) { SYSTEM("SystemGetCudaDriverVersion"); *out = 13000; return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { return nvmlSystemGetCudaDriverVersion(out); }
int nvmlDeviceGetCount_v2(unsigned *out) {
    SYSTEM("GetCount");
    *out = number("gpus", 8) - (number("absent", -1) >= 0);
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **out) {
    unsigned gpu = index + (index >= (unsigned)number("absent", MOST_GPUS));
    int error = enter("GetHandleByIndex", gpu);
    if (error) return error;
    *out = &gpus[gpu];
    return OK;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, Gpu **out) {
    unsigned domain, place;
    if (sscanf(bus, "%8x:%2x:", &domain, &place) != 2) return INVALID;
    int error = enter("GetHandleByPciBusId", place / 16);
    if (error) return error;
    *out = &gpus[place / 16];
    return OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Gpu **out) {
    return nvmlDeviceGetHandleByIndex_v2(atoi(uuid + strlen(uuid) - 2), out);
}
