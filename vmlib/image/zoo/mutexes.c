/* Mutexes of all kinds, some held by the saving thread, some by another thread. Mutexes that hold
 * their owner's id hold the new id after the restore. */
#include "zoo.h"

enum { KINDS = 8 };

static const struct {
    int type, robust, inherit;
} kinds[KINDS] = {
    {PTHREAD_MUTEX_NORMAL, 0, 0},     {PTHREAD_MUTEX_RECURSIVE, 0, 0},
    {PTHREAD_MUTEX_ERRORCHECK, 0, 0}, {PTHREAD_MUTEX_NORMAL, 1, 0},
    {PTHREAD_MUTEX_RECURSIVE, 1, 0},  {PTHREAD_MUTEX_NORMAL, 0, 1},
    {PTHREAD_MUTEX_ERRORCHECK, 0, 1}, {PTHREAD_MUTEX_RECURSIVE, 1, 1},
};

/* Held by the saving thread, by the other thread, by the saving thread while threads wait for them,
 * and by the other thread to its end. */
static pthread_mutex_t own[KINDS], other[KINDS], wanted[KINDS], kept[KINDS];
static volatile int waiter_ids[KINDS], count, holder_has;
static pthread_barrier_t go_on;

static void make(pthread_mutex_t *mutex, int kind) {
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
    pthread_mutexattr_settype(&how, kinds[kind].type);
    if (kinds[kind].robust)
        pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
    if (kinds[kind].inherit)
        ZOO_CHECK(pthread_mutexattr_setprotocol(&how, PTHREAD_PRIO_INHERIT) == 0);
    ZOO_CHECK(pthread_mutex_init(mutex, &how) == 0);
}

static void lock(pthread_mutex_t *mutex, int kind) {
    ZOO_CHECK(pthread_mutex_lock(mutex) == 0);
    if (kinds[kind].type == PTHREAD_MUTEX_RECURSIVE)
        ZOO_CHECK(pthread_mutex_lock(mutex) == 0);
}

static void unlock(pthread_mutex_t *mutex, int kind) {
    if (kinds[kind].type == PTHREAD_MUTEX_RECURSIVE) {
        ZOO_CHECK(pthread_mutex_trylock(mutex) == 0);
        for (int n = 0; n < 2; n++)
            ZOO_CHECK(pthread_mutex_unlock(mutex) == 0);
    }
    if (kinds[kind].type == PTHREAD_MUTEX_ERRORCHECK)
        ZOO_CHECK(pthread_mutex_lock(mutex) == EDEADLK);
    ZOO_CHECK(pthread_mutex_unlock(mutex) == 0);
}

static void *hold(void *unused) {
    for (int kind = 0; kind < KINDS; kind++) {
        lock(&other[kind], kind);
        lock(&kept[kind], kind);
    }
    holder_has = 1;
    pthread_barrier_wait(&go_on);
    for (int kind = 0; kind < KINDS; kind++)
        unlock(&other[kind], kind);
    /* The thread ends while it holds the others. */
    return unused;
}

static void *wait_for_it(void *number) {
    int kind = (int)(long)number;
    waiter_ids[kind] = zoo_tid();
    ZOO_CHECK(pthread_mutex_lock(&wanted[kind]) == 0);
    __sync_fetch_and_add(&count, 1);
    ZOO_CHECK(pthread_mutex_unlock(&wanted[kind]) == 0);
    return NULL;
}

int main(void) {
    pthread_t holder, waiters[KINDS];
    zoo_begin();
    pthread_barrier_init(&go_on, NULL, 2);
    for (int kind = 0; kind < KINDS; kind++) {
        make(&own[kind], kind), make(&other[kind], kind);
        make(&wanted[kind], kind), make(&kept[kind], kind);
        lock(&own[kind], kind), lock(&wanted[kind], kind);
    }
    ZOO_CHECK(pthread_create(&holder, NULL, hold, NULL) == 0);
    while (!holder_has)
        sched_yield();
    for (long kind = 0; kind < KINDS; kind++) {
        ZOO_CHECK(pthread_create(&waiters[kind], NULL, wait_for_it, (void *)kind) == 0);
        zoo_until_asleep(&waiter_ids[kind]);
    }

    zoo_save_point();

    ZOO_CHECK(count == 0);
    for (int kind = 0; kind < KINDS; kind++) {
        ZOO_CHECK(pthread_mutex_trylock(&other[kind]) == EBUSY);
        unlock(&own[kind], kind), unlock(&wanted[kind], kind);
        ZOO_CHECK(pthread_join(waiters[kind], NULL) == 0 && count == kind + 1);
    }
    pthread_barrier_wait(&go_on);
    ZOO_CHECK(pthread_join(holder, NULL) == 0);
    for (int kind = 0; kind < KINDS; kind++) {
        ZOO_CHECK(pthread_mutex_lock(&other[kind]) == 0);
        if (kinds[kind].robust)
            ZOO_CHECK(pthread_mutex_lock(&kept[kind]) == EOWNERDEAD);
    }
    zoo_ok("mutexes");
}
