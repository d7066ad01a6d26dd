/*
 * A clock on the wall that is wrong by PGQUEUE_TEST_CLOCK_WRONG seconds, for a process
 * that is started with this library in LD_PRELOAD. Whatever waits goes by another clock
 * and is left alone: libfaketime 0.9.10 is not that careful, and a worker under it
 * stands still.
 */

#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *at)
{
    int status = (int)syscall(SYS_clock_gettime, clock, at);
    const char *wrong = getenv("PGQUEUE_TEST_CLOCK_WRONG");
    if (status == 0 && wrong != NULL
        && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += atol(wrong);
    return status;
}

int gettimeofday(struct timeval *at, void *zone)
{
    struct timespec now;
    int status = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return status;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at != NULL)
        *at = now.tv_sec;
    return now.tv_sec;
}
