/* A stand-in for NVIDIA's libnvidia-ml.so.1: as much of NVML as the exporter and its peers ask for.

   It is told how to behave by the file that FAKE_NVML_CTL names, which it reads again whenever it
   changed. One "key=value" a line; FN is a function without "nvml" and version, GPU a number, and
   "FN" alone means on every GPU:
     gpus=8                 how many there are
     profile=h200           h200, a100 (before Ada), a100-mig (split), rtx4080 (no HBM) or b200 (NVLink 5)
     driver=580.95.05       its version, on which numbers of fields depend
     absent=3               this GPU is no longer listed, and those behind it get lower numbers
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
     odd=20                 by how much the oldest sample of a reading is above the others
     energy=7               millijoules
     power=300000           power draw in mW
     margin=37              degrees left
     reasons=68             why clocks are held down, as bits
     down=2                 this many NVLinks are down
     fabric=3               state of the fabric
     field=ID:TYPE:VALUE    this field has this value in one of NVML's types
     refuse=ID:3            this field gives the error
     untouched=ID:          this field is left as it was
     latency=40             microseconds that each field took
     xid=3:79:1             an Xid error of this GPU, once for each new line
     mig=3                  this GPU is split; with profile=a100-mig all are, into seven instances each
     instance=3:0:7:0:1g.18gb   number 0 of its instances: GPU instance 7, compute instance 0. Once this
                            line changed, the old handle is void and comes in place of the new one,
                            until NVML is opened anew
     unprivileged=1         memory and processes of split GPUs are not for everybody
     gpm=2:150              value of this GPM metric on every GPU; "nan" for none
     gpmerror=2:3           error of this GPM metric
     process=3:compute:70:512:40   process 70 holds 512 MiB (-1 unknown) and has 40 % of the time
     crowd=3:1000           so many processes from 5000000 on that hold 1 MiB each
     growing=2              lists grow after their length was told, so many times
   FAKE_NVML_LOG names a file that gets a line for each call: function and GPU. GpmWindow is no
   call: it has the milliseconds between two samples that were compared. */

#pragma once
#define _GNU_SOURCE
#include <stdint.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4,
       NOT_FOUND = 6, SMALL = 7, TIMEOUT = 10 };
enum { MOST_GPUS = 16, U32 = 1, U64 = 3, S32 = 5 };
enum { H200, A100, RTX4080, B200 };
enum { ANY = 1, HBM = 2, ECC = 4, NVLINKS = 8, NVLINK = 16, NVLINK5 = 32, FABRIC = 64, OFFSETS = 128 };
#define DRIVER "580.95.05"

typedef struct Instance Instance;
typedef struct { int number; Instance *instance; } Gpu;

extern Gpu gpus[MOST_GPUS];
extern int initialized;

uint64_t clock_us(void);
void sleep_ms(long milliseconds);

/* The value of the n-th line with this key, in a buffer of the caller's; as a number; as a profile. */
int value(const char *key, int n, char out[64]);
long number(const char *key, long otherwise);
int profile(void);

/* Does the GPU have this? The driver's version, as 1000 x major + minor. */
int has(int what);
int driver(void);

/* Is this GPU split into instances? Is one of them among these? What one is, by its handle. */
int split(const Gpu *gpu);
void forget_instances(void);
int has_instance(const Gpu *gpu, unsigned gi);
int instance_name(const Gpu *gpu, const char *board, char *out, unsigned size);
int instance_uuid(const Gpu *gpu, char *out, unsigned size);
int instance_memory(const Gpu *gpu, uint64_t *total, uint64_t *used);

/* Does a line "key=FN[@GPU][:number]" speak of this call? */
int concerns(const char *key, const char *function, int gpu, long *argument);
int gone(int gpu);
void note(const char *function, int gpu);

/* Behave as told before a call, and give the error that it is to have. */
int enter(const char *function, int gpu);
int text(char *out, unsigned size, const char *format, ...);

#define SYSTEM(name) do { int error = enter(name, -1); if (error) return error; } while (0)
#define DEVICE(name) do { \
        if (!gpu) { note("null", -1); return INVALID; } \
        int error = enter(name, gpu->number); if (error) return error; \
    } while (0)
