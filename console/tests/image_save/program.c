/* A program that knows nothing of images. It says that it is ready, and waits for a signal. Its argument
 * is what it does with its signals before. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void ignore(int signal) {
    (void)signal;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    unsigned long all = -1ul;
    sigset_t set;
    /* Descriptors of whoever started it. */
    syscall(SYS_close_range, 3u, ~0u, 0u);
    if (!strcmp(what, "takes"))
        signal(61, ignore);
    if (!strcmp(what, "blocks")) {
        sigfillset(&set);
        sigprocmask(SIG_BLOCK, &set, NULL);
    }
    if (!strcmp(what, "blocks by a bare call"))
        syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, sizeof all);
    puts("ready");
    fflush(stdout);
    for (;;)
        sleep(1000);
}
