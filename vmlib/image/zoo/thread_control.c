/* Calls that affect a thread by its id: signals, cancellation, joining, priorities. */
#include "zoo.h"

static volatile int ids[3], handled, cleaned;
static pthread_key_t key;

static void on_signal(int signal) {
    (void)signal;
    handled = zoo_tid();
}

static void clean(void *value) {
    cleaned += *(int *)value;
}

static void *pause_in_vain(void *value) {
    static int one = 1;
    pthread_setspecific(key, value);
    pthread_cleanup_push(clean, &one);
    ids[0] = zoo_tid();
    for (;;)
        pause();
    pthread_cleanup_pop(0);
    return NULL;
}

static void *wait_for_signal(void *unused) {
    sigset_t set;
    int signal;
    (void)unused;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    ids[1] = zoo_tid();
    ZOO_CHECK(sigwait(&set, &signal) == 0);
    return (void *)(long)signal;
}

static void *join_other(void *other) {
    void *result;
    ids[2] = zoo_tid();
    ZOO_CHECK(pthread_join(*(pthread_t *)other, &result) == 0);
    return result;
}

int main(void) {
    static int ten = 10;
    pthread_t pausing, waiting, joining;
    sigset_t set;
    void *result;
    zoo_begin();
    signal(SIGUSR1, on_signal);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    ZOO_CHECK(pthread_key_create(&key, clean) == 0);
    ZOO_CHECK(pthread_create(&pausing, NULL, pause_in_vain, &ten) == 0);
    ZOO_CHECK(pthread_create(&waiting, NULL, wait_for_signal, NULL) == 0);
    ZOO_CHECK(pthread_create(&joining, NULL, join_other, &waiting) == 0);
    for (int n = 0; n < 3; n++)
        zoo_until_asleep(&ids[n]);
    int then = ids[0], lives = zoo_save_point();
    ZOO_CHECK(pthread_kill(pausing, SIGUSR1) == 0);
    while (!handled)
        sched_yield();
    ZOO_CHECK(lives > 0 || handled == then);
    ZOO_CHECK(handled != zoo_tid());
    ZOO_CHECK(pthread_cancel(pausing) == 0 && pthread_join(pausing, &result) == 0);
    ZOO_CHECK(result == PTHREAD_CANCELED && cleaned == 11);
    ZOO_CHECK(pthread_kill(waiting, SIGUSR2) == 0);
    ZOO_CHECK(pthread_join(joining, &result) == 0 && (long)result == SIGUSR2);
    ZOO_CHECK(raise(SIGUSR1) == 0 && handled == zoo_tid());
    zoo_ok("thread_control");
}
