/* A stand-in for NVIDIA's libnvidia-ml.so.1: as much of NVML as the exporter and its peers ask for.

   It is told how to behave by the file that FAKE_NVML_CTL names, which it reads again whenever it
   changed. One "key=value" a line; FN is a function without "nvml" and version, GPU a number, and
   "FN" alone means on every GPU:
     gpus=8                 how many there are
     profile=h200           h200, a100 (before Ada) or rtx4080 (no HBM)
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
     energy=7               millijoules
     xid=3:79:1             an Xid error of this GPU, once for each new line
   FAKE_NVML_LOG names a file that gets a line for each call: function and GPU. */

#pragma once
#define _GNU_SOURCE
#include <stdint.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, TIMEOUT = 10 };
enum { MOST_GPUS = 16, UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3, SIGNED_INT = 5 };
enum { H200, A100, RTX4080 };

typedef struct { int number; } Gpu;

extern Gpu gpus[MOST_GPUS];
extern int initialized;

uint64_t clock_us(void);
void sleep_ms(long milliseconds);

/* The value of the n-th line with this key, in a buffer of the caller's; as a number; as a profile. */
int value(const char *key, int n, char out[64]);
long number(const char *key, long otherwise);
int profile(void);

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
