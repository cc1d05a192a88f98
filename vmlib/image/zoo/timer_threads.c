/* A timer that starts a thread each time. The C library has a helper thread for that, which blocks all
 * signals by bare calls: a save of such a process is refused, and the process runs on. */
#include "zoo.h"

static volatile int ticks;

static void tick(union sigval value) {
    __sync_fetch_and_add(&ticks, value.sival_int);
}

int main(void) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD,
                             .sigev_notify_function = tick,
                             .sigev_value.sival_int = 3};
    struct itimerspec times = {{0, 10000000}, {0, 10000000}};
    timer_t timer;
    zoo_begin();
    ZOO_CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    ZOO_CHECK(timer_settime(timer, 0, &times, NULL) == 0);
    while (ticks == 0)
        sched_yield();
    zoo_refused("blocks signal 62, which stops threads");
    for (int then = ticks; ticks < then + 9;)
        sched_yield();
    ZOO_CHECK(ticks % 3 == 0);
    zoo_ok("timer_threads");
}
