/* The point where a program of the zoo is saved, for C and C++; examples/zoo/point.rs is the one for
 * Rust. A program whose state is right calls zoo_ok. */
#ifndef ZOO_H
#define ZOO_H

#include "vm_image.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Ends the program with a message if a condition does not hold. */
#define ZOO_CHECK(is_so)                                                                           \
    do {                                                                                           \
        if (!(is_so)) {                                                                            \
            fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #is_so, errno);  \
            _exit(101);                                                                            \
        }                                                                                          \
    } while (0)

static inline int zoo_number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

/* Saves this process. Returns 0 in the process that runs on, and the number of restores in a restored
 * process. */
static inline int zoo_save_point(void) {
    const char *folder = getenv("ZOO_IMAGE");
    int saves = zoo_number("ZOO_SAVES", 1);
    ZOO_CHECK(folder != NULL);
    for (int number = 1; number <= saves; number++) {
        char path[4096];
        snprintf(path, sizeof path, "%s.%d", folder, number);
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        ZOO_CHECK(fd >= 0);
        unsigned flags = (getenv("ZOO_FORKED") ? VM_IMAGE_FORKED : 0) |
                         (getenv("ZOO_IN_ROUNDS") ? VM_IMAGE_ROUNDS : 0);
        int saved = vm_image_save(fd, flags);
        close(fd);
        if (saved < 0) {
            fprintf(stderr, "%s\n", vm_image_error());
            _exit(101);
        }
        if (saved == 0) {
            if (getenv("ZOO_LEAVE"))
                _exit(0);
            return number - 1;
        }
    }
    return saves;
}

/* Requests a save, which must be refused with a text that contains this one. */
static inline void zoo_refused(const char *text) {
    char path[4096];
    snprintf(path, sizeof path, "%s.1", getenv("ZOO_IMAGE"));
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ZOO_CHECK(vm_image_save(fd, 0) == -1);
    if (!strstr(vm_image_error(), text)) {
        fprintf(stderr, "%s\n", vm_image_error());
        _exit(101);
    }
    close(fd);
}

static void *zoo_busy(void *unused) {
    for (volatile unsigned long number = 0;; number++)
        ;
    return unused;
}

/* Starts threads that compute all the time and take no signal. */
static inline void zoo_begin(void) {
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int n = zoo_number("ZOO_BUSY", 0); n > 0; n--)
        ZOO_CHECK(pthread_create(&thread, NULL, zoo_busy, NULL) == 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static inline int zoo_tid(void) {
    return (int)syscall(SYS_gettid);
}

/* Waits until a thread sleeps in the kernel. That thread stores its id in *tid. */
static inline void zoo_until_asleep(volatile int *tid) {
    char path[64], text[512];
    while (*tid == 0)
        sched_yield();
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", *tid);
    for (time_t end = time(NULL) + 30; time(NULL) < end; sched_yield()) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t len = read(fd, text, sizeof text - 1);
        close(fd);
        ZOO_CHECK(len > 0);
        text[len] = 0;
        if (strrchr(text, ')')[2] == 'S')
            return;
    }
    ZOO_CHECK(!"the thread sleeps within 30 seconds");
}

static inline void zoo_ok(const char *name) {
    printf("ok %s\n", name);
    fflush(stdout);
    _exit(0);
}

#endif
