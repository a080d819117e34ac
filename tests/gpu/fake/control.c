/* What the library is told, and how a call behaves for it. */

#include "fake.h"

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

Gpu gpus[MOST_GPUS];
typedef struct { char text[4096]; struct stat seen; } Control;
static Control control;
int initialized;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t clock_us(void) {
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
int value(const char *key, int n, char out[64]) {
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

long number(const char *key, long otherwise) {
    char text[64];
    return value(key, 0, text) ? atol(text) : otherwise;
}

int profile(void) {
    char text[64];
    if (!value("profile", 0, text)) return H200;
    if (!strncmp(text, "a100", 4)) return A100;
    return !strcmp(text, "rtx4080") ? RTX4080 : !strcmp(text, "b200") ? B200 : H200;
}

int has(int what) {
    return what & (int[]){
        ANY | HBM | ECC | NVLINKS | NVLINK | FABRIC | OFFSETS,
        ANY | HBM | ECC | NVLINKS | NVLINK,
        ANY | OFFSETS,
        ANY | HBM | ECC | NVLINKS | NVLINK5 | FABRIC | OFFSETS,
    }[profile()];
}

int driver(void) {
    char text[64];
    int major = 0, minor = 0;
    sscanf(value("driver", 0, text) ? text : DRIVER, "%d.%d", &major, &minor);
    return 1000 * major + minor;
}

void sleep_ms(long milliseconds) {
    struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* Does a line "key=FN[@GPU][:number]" speak of this call? */
int concerns(const char *key, const char *function, int gpu, long *argument) {
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

int gone(int gpu) {
    static int latched[MOST_GPUS];
    int error = error_of("gone", gpu);
    if (!initialized) latched[gpu] = 0;
    if (error) latched[gpu] = error;
    return latched[gpu];
}

void note(const char *function, int gpu) {
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

int enter(const char *function, int gpu) {
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


int text(char *out, unsigned size, const char *format, ...) {
    va_list words;
    va_start(words, format);
    vsnprintf(out, size, format, words);
    va_end(words);
    return OK;
}
