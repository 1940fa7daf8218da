/* A disk that is full and a clock that was set, for the processes that are started with this in LD_PRELOAD.
 *
 * TUNER_FAULT_SHIM names a folder. While it holds a file `full`, writes to regular files fail with ENOSPC (but not
 * those to the standard streams). While it holds a file `clock`, the wall clock runs so many seconds beside the true
 * one. Steady clocks are left alone, as the kernel leaves them alone when somebody sets the time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int switch_path(char *path, size_t size, const char *name) {
    const char *folder = getenv("TUNER_FAULT_SHIM");
    return folder && (size_t)snprintf(path, size, "%s/%s", folder, name) < size;
}

static int disk_is_full(int file) {
    char path[512];
    struct stat about;
    int before = errno;
    int full = file > STDERR_FILENO && switch_path(path, sizeof path, "full") && access(path, F_OK) == 0 && fstat(file, &about) == 0 &&
               S_ISREG(about.st_mode);
    errno = full ? ENOSPC : before;
    return full;
}

static time_t seconds_beside(void) {
    static int (*real_open)(const char *, int, ...);
    char path[512], text[32];
    int before = errno;
    time_t seconds = 0;
    if (!real_open)
        real_open = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    if (switch_path(path, sizeof path, "clock")) {
        int file = real_open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            ssize_t length = read(file, text, sizeof text - 1);
            close(file);
            if (length > 0) {
                text[length] = 0;
                seconds = atol(text);
            }
        }
    }
    errno = before;
    return seconds;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *data, size_t size) {
    static __typeof__(&write) real;
    if (!real) real = REAL(write);
    return disk_is_full(file) ? -1 : real(file, data, size);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    static __typeof__(&writev) real;
    if (!real) real = REAL(writev);
    return disk_is_full(file) ? -1 : real(file, parts, count);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    static __typeof__(&pwrite) real;
    if (!real) real = REAL(pwrite);
    return disk_is_full(file) ? -1 : real(file, data, size, at);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    static __typeof__(&pwrite64) real;
    if (!real) real = REAL(pwrite64);
    return disk_is_full(file) ? -1 : real(file, data, size, at);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static __typeof__(&clock_gettime) real;
    if (!real) real = REAL(clock_gettime);
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += seconds_beside();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    static __typeof__(&gettimeofday) real;
    if (!real) real = REAL(gettimeofday);
    int failed = real(now, zone);
    if (!failed) now->tv_sec += seconds_beside();
    return failed;
}

time_t time(time_t *where) {
    static __typeof__(&time) real;
    if (!real) real = REAL(time);
    time_t now = real(NULL) + seconds_beside();
    if (where) *where = now;
    return now;
}
