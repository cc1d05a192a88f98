/* Threads that the C library starts for asynchronous files and look-ups of names: they block all
 * signals. One reads, one waits for work. */
#include "zoo.h"
#include <aio.h>
#include <netdb.h>

static volatile int told;

static void tell(union sigval value) {
    told = value.sival_int;
}

int main(void) {
    int ends[2];
    char byte = 0, text[5] = "";
    struct addrinfo numeric = {.ai_flags = AI_NUMERICHOST};
    struct gaicb look_up = {.ar_name = "192.0.2.7", .ar_request = &numeric}, *all[1] = {&look_up};
    zoo_begin();
    ZOO_CHECK(pipe2(ends, O_CLOEXEC) == 0);
    struct aiocb reading = {.aio_fildes = ends[0], .aio_buf = text, .aio_nbytes = 4};
    struct aiocb writing = {.aio_fildes = ends[1],
                            .aio_buf = &byte,
                            .aio_nbytes = 0,
                            .aio_sigevent = {.sigev_notify = SIGEV_THREAD,
                                             .sigev_notify_function = tell,
                                             .sigev_value.sival_int = 7}};
    ZOO_CHECK(aio_read(&reading) == 0);
    ZOO_CHECK(aio_write(&writing) == 0);
    while (told != 7 || aio_error(&writing) == EINPROGRESS)
        sched_yield();
    ZOO_CHECK(getaddrinfo_a(GAI_WAIT, all, 1, NULL) == 0 && gai_error(&look_up) == 0);

    zoo_save_point();

    ZOO_CHECK(aio_error(&reading) == EINPROGRESS);
    ZOO_CHECK(write(ends[1], "abcd", 4) == 4);
    const struct aiocb *wait_for[1] = {&reading};
    while (aio_error(&reading) == EINPROGRESS)
        ZOO_CHECK(aio_suspend(wait_for, 1, NULL) == 0 || errno == EINTR);
    ZOO_CHECK(aio_return(&reading) == 4 && strcmp(text, "abcd") == 0);
    ZOO_CHECK(aio_return(&writing) == 0);
    freeaddrinfo(look_up.ar_result);
    ZOO_CHECK(getaddrinfo_a(GAI_WAIT, all, 1, NULL) == 0 && gai_error(&look_up) == 0);
    zoo_ok("helpers");
}
