/* A stand-in for NVIDIA's libnvidia-ml.so.1: as much of NVML as the exporter and its peers ask for.

   It is told how to behave by the file that FAKE_NVML_CTL names, which it reads again whenever it
   changed. One "key=value" a line; FN is a function without "nvml" and version, GPU a number, and
   "FN" alone means on every GPU:
     gpus=8                 how many there are
     profile=h200           h200, a100 (before Ada) or rtx4080 (no HBM)
     init=9                 error of nvmlInit: 9 no driver, 18 version mismatch, 4 no permission
     lost=3:15              every call on this GPU gives the error, as does looking it up
     gone=3:15              the same, until NVML is opened anew
     all=999                every call on every GPU gives the error
     error=FN[@GPU]:4       this call gives the error
     slow=FN[@GPU]:500      this call takes so many milliseconds
     hang=FN[@GPU]          this call does not return while this line stands
     wedge=FN[@GPU]         this call never returns
     held=FN[@GPU]          it waits for a file, in a state in which /proc shows it as unkillable
     segv=FN                this call crashes
     util=808334905         utilization in percent
     xid=3:79:1             an Xid error of this GPU, once for each new line
   FAKE_NVML_LOG names a file that gets a line for each call: function and GPU. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, TIMEOUT = 10 };
enum { MOST_GPUS = 16, UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3, SIGNED_INT = 5 };
enum { H200, A100, RTX4080 };

typedef struct { int number; } Gpu;
typedef struct { char text[4096]; struct stat seen; } Control;

static Gpu gpus[MOST_GPUS];
static Control control;
static char last_xid[64];
static int initialized;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t clock_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000ull + now.tv_nsec / 1000;
}

/* At most every 2 ms: a call must cost next to nothing. */
static void refresh(void) {
    static uint64_t checked;
    const char *path = getenv("FAKE_NVML_CTL");
    struct stat now;
    if (!path || clock_us() - checked < 2000) return;
    checked = clock_us();
    if (stat(path, &now)) return;
    if (now.st_mtim.tv_nsec == control.seen.st_mtim.tv_nsec && now.st_mtim.tv_sec == control.seen.st_mtim.tv_sec
        && now.st_ino == control.seen.st_ino) return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? -1 : read(file, control.text + 1, sizeof control.text - 2);
    if (file >= 0) close(file);
    control.text[0] = '\n';
    control.text[size > 0 ? size + 1 : 1] = 0;
    control.seen = now;
}

/* The value of the n-th line with this key, in a buffer of the caller's. */
static int value(const char *key, int n, char out[64]) {
    char start[32];
    snprintf(start, sizeof start, "\n%s=", key);
    pthread_mutex_lock(&lock);
    refresh();
    const char *at = control.text;
    while ((at = strstr(at, start)) && n--) at++;
    if (at) snprintf(out, 64, "%.*s", (int)strcspn(at + strlen(start), "\n"), at + strlen(start));
    pthread_mutex_unlock(&lock);
    return at != NULL;
}

static long number(const char *key, long otherwise) {
    char text[64];
    return value(key, 0, text) ? atol(text) : otherwise;
}

static int profile(void) {
    char text[64];
    if (!value("profile", 0, text)) return H200;
    return !strcmp(text, "a100") ? A100 : !strcmp(text, "rtx4080") ? RTX4080 : H200;
}

static void sleep_ms(long milliseconds) {
    struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* Does a line "key=FN[@GPU][:number]" speak of this call? */
static int concerns(const char *key, const char *function, int gpu, long *argument) {
    char text[64], name[64];
    for (int n = 0; value(key, n, text); n++) {
        char *colon = strchr(text, ':'), *at;
        if (argument && colon) *argument = atol(colon + 1);
        if (colon) *colon = 0;
        strcpy(name, text);
        if ((at = strchr(name, '@'))) *at++ = 0;
        if (!strcmp(name, function) && (!at || atoi(at) == gpu)) return 1;
    }
    return 0;
}

/* The error of a line "key=GPU:error". */
static int error_of(const char *key, int gpu) {
    char text[64], *colon;
    for (int n = 0; value(key, n, text); n++)
        if (atoi(text) == gpu) return (colon = strchr(text, ':')) ? atoi(colon + 1) : 15;
    return OK;
}

static int gone(int gpu) {
    static int latched[MOST_GPUS];
    int error = error_of("gone", gpu);
    if (!initialized) latched[gpu] = 0;
    if (error) latched[gpu] = error;
    return latched[gpu];
}

static void note(const char *function, int gpu) {
    const char *path = getenv("FAKE_NVML_LOG");
    int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
    if (file < 0) return;
    dprintf(file, "%s %d\n", function, gpu);
    close(file);
}

/* A thread whose child shares its memory waits for it in the state that a driver holds threads in. */
static void held(void) {
    static char release[512];
    snprintf(release, sizeof release, "%s.release", getenv("FAKE_NVML_CTL"));
    if (vfork() == 0) {
        while (access(release, F_OK)) usleep(10000);
        _exit(0);
    }
}

static int enter(const char *function, int gpu) {
    long argument = 0;
    note(function, gpu);
    if (concerns("segv", function, gpu, NULL)) abort();
    if (concerns("slow", function, gpu, &argument)) sleep_ms(argument);
    if (concerns("held", function, gpu, NULL)) held();
    while (concerns("hang", function, gpu, NULL)) sleep_ms(20);
    if (concerns("wedge", function, gpu, NULL)) for (;;) sleep_ms(1000);
    if (!initialized) return UNINITIALIZED;
    if (concerns("error", function, gpu, &argument)) return argument;
    if (gpu < 0) return OK;
    int error = number("all", OK);
    if (!error) error = error_of("lost", gpu);
    return error ? error : gone(gpu);
}

#define SYSTEM(name) do { int error = enter(name, -1); if (error) return error; } while (0)
#define DEVICE(name) do { \
        if (!gpu) { note("null", -1); return INVALID; } \
        int error = enter(name, gpu->number); if (error) return error; \
    } while (0)

static int text(char *out, unsigned size, const char *format, ...) {
    va_list words;
    va_start(words, format);
    vsnprintf(out, size, format, words);
    va_end(words);
    return OK;
}

/* the system */

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    note("InitWithFlags", -1);
    initialized = 1;
    enter("Init", -1);
    int error = number("init", OK);
    initialized = !error;
    for (int n = 0; n < MOST_GPUS; n++) gpus[n].number = n;
    return error;
}

int nvmlShutdown(void) {
    SYSTEM("Shutdown");
    initialized = 0;
    for (int n = 0; n < MOST_GPUS; n++) gone(n);
    return OK;
}

const char *nvmlErrorString(int code) { return code == OK ? "Success" : "an error"; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    SYSTEM("SystemGetDriverVersion");
    return text(out, size, "580.95.05");
}
int nvmlSystemGetNVMLVersion(char *out, unsigned size) {
    SYSTEM("SystemGetNVMLVersion");
    return text(out, size, "13.580.95.05");
}
int nvmlSystemGetCudaDriverVersion(int *out) { SYSTEM("SystemGetCudaDriverVersion"); *out = 13000; return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { return nvmlSystemGetCudaDriverVersion(out); }
int nvmlDeviceGetCount_v2(unsigned *out) { SYSTEM("GetCount"); *out = number("gpus", 8); return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **out) {
    int error = enter("GetHandleByIndex", index);
    if (error) return error;
    *out = &gpus[index];
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

/* what a GPU is */

int nvmlDeviceGetUUID(Gpu *gpu, char *out, unsigned size) {
    DEVICE("GetUUID");
    return text(out, size, "GPU-00000000-0000-0000-0000-0000000000%02d", gpu->number);
}
int nvmlDeviceGetIndex(Gpu *gpu, unsigned *out) { DEVICE("GetIndex"); *out = gpu->number; return OK; }
int nvmlDeviceGetName(Gpu *gpu, char *out, unsigned size) {
    DEVICE("GetName");
    const char *names[] = {"NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4080"};
    return text(out, size, names[profile()]);
}
int nvmlDeviceGetVbiosVersion(Gpu *gpu, char *out, unsigned size) {
    DEVICE("GetVbiosVersion");
    return text(out, size, "96.00.A5.00.01");
}
int nvmlDeviceGetArchitecture(Gpu *gpu, unsigned *out) {
    DEVICE("GetArchitecture");
    *out = (unsigned[]){9, 7, 8}[profile()];
    return OK;
}
int nvmlDeviceGetCudaComputeCapability(Gpu *gpu, int *major, int *minor) {
    DEVICE("GetCudaComputeCapability");
    *major = (int[]){9, 8, 8}[profile()];
    *minor = (int[]){0, 0, 9}[profile()];
    return OK;
}

typedef struct { char old[16]; unsigned domain, bus, device, id, subsystem; char busId[32]; } Pci;

int nvmlDeviceGetPciInfo_v3(Gpu *gpu, Pci *out) {
    DEVICE("GetPciInfo");
    memset(out, 0, sizeof *out);
    out->bus = 16 * gpu->number;
    return text(out->busId, sizeof out->busId, "00000000:%02X:00.0", out->bus);
}

/* what it does */

typedef struct { unsigned gpu, memory; } Utilization;

int nvmlDeviceGetUtilizationRates(Gpu *gpu, Utilization *out) {
    DEVICE("GetUtilizationRates");
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
    if (first <= after / 100000) first = after / 100000 + 1;
    if (first > last) return NOT_FOUND;
    *type = UNSIGNED_INT;
    unsigned have = last - first + 1;
    if (!out) { *count = have; return OK; }
    for (unsigned n = 0; n < have && n < *count; n++) {
        memset(&out[n], 0xAA, sizeof out[n]);
        out[n].at = (first + n) * 100000;
        out[n].value.small = number("util", 40 + gpu->number) + 20 * (n == 0);
    }
    if (have < *count) *count = have;
    return OK;
}

typedef struct { unsigned version; uint64_t total, reserved, free, used; } Memory2;
typedef struct { uint64_t total, free, used; } Memory1;

static uint64_t total(void) { return (uint64_t[]){150754820096, 85899345920, 17171480576}[profile()]; }
static uint64_t used(Gpu *gpu) { return (10ull + gpu->number) << 30; }

int nvmlDeviceGetMemoryInfo_v2(Gpu *gpu, Memory2 *out) {
    DEVICE("GetMemoryInfo");
    if (out->version != 0x2000028) return 25;
    *out = (Memory2){out->version, total(), 643825664, total() - 643825664 - used(gpu), used(gpu)};
    return OK;
}
int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory1 *out) {
    DEVICE("GetMemoryInfo");
    *out = (Memory1){total(), total() - 643825664 - used(gpu), used(gpu) + 643825664};
    return OK;
}

int nvmlDeviceGetPowerUsage(Gpu *gpu, unsigned *out) {
    DEVICE("GetPowerUsage");
    *out = 300000 + 1000 * gpu->number;
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
    *out = 5000000000000 + gpu->number;
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
    out->celsius = 37 - gpu->number;
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

/* Xid errors */

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
    for (uint64_t until = clock_us() + milliseconds * 1000ull;; sleep_ms(50)) {
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

/* what only others ask for */

#define CONSTANT(name, type, number) \
    int nvmlDeviceGet##name(Gpu *gpu, type *out) { DEVICE("Get" #name); *out = number; return OK; }
CONSTANT(PerformanceState, int, 0)
CONSTANT(PersistenceMode, int, 1)
CONSTANT(ComputeMode, int, 0)
CONSTANT(DisplayActive, int, 0)
CONSTANT(DisplayMode, int, 0)
CONSTANT(FanSpeed, unsigned, 30)
CONSTANT(MinorNumber, unsigned, gpu->number)
CONSTANT(MaxPcieLinkGeneration, unsigned, 5)
CONSTANT(CurrPcieLinkGeneration, unsigned, 5)
CONSTANT(MaxPcieLinkWidth, unsigned, 16)
CONSTANT(CurrPcieLinkWidth, unsigned, 16)
CONSTANT(MaxMigDeviceCount, unsigned, 0)

#define PAIR(name) \
    int nvmlDeviceGet##name(Gpu *gpu, unsigned *one, unsigned *two) { \
        DEVICE("Get" #name); *one = *two = 0; return OK; }
PAIR(MigMode)
PAIR(EccMode)
PAIR(EncoderUtilization)
PAIR(DecoderUtilization)

/* The real one blocks for 20 ms; here driver calls cost nothing, for everybody. */
int nvmlDeviceGetPcieThroughput(Gpu *gpu, int direction, unsigned *out) {
    DEVICE("GetPcieThroughput");
    (void)direction;
    *out = 1000;
    return OK;
}

typedef struct { uint64_t total, free, used; } Bar1;

int nvmlDeviceGetBAR1MemoryInfo(Gpu *gpu, Bar1 *out) {
    DEVICE("GetBAR1MemoryInfo");
    *out = (Bar1){1ull << 37, 1ull << 36, 1ull << 36};
    return OK;
}

#define PROCESSES(name) \
    int nvmlDeviceGet##name##RunningProcesses_v3(Gpu *gpu, unsigned *count, void *out) { \
        DEVICE("Get" #name "RunningProcesses"); (void)out; *count = 0; return OK; }
PROCESSES(Compute)
PROCESSES(Graphics)
PROCESSES(MPSCompute)

int nvmlDeviceGetProcessUtilization(Gpu *gpu, void *out, unsigned *count, uint64_t after) {
    DEVICE("GetProcessUtilization");
    (void)out, (void)after;
    *count = 0;
    return NOT_FOUND;
}
