/* Mutexes of all kinds, held by the thread that saves, and one that another thread waits for. */
#include "zoo.h"

static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, recursive, checking, robust;
static volatile int waiter_id, count;

static void *wait_for_it(void *unused) {
    waiter_id = zoo_tid();
    ZOO_CHECK(pthread_mutex_lock(&plain) == 0);
    count++;
    ZOO_CHECK(pthread_mutex_unlock(&plain) == 0);
    return unused;
}

static void *die_with_it(void *unused) {
    ZOO_CHECK(pthread_mutex_lock(&robust) == 0);
    return unused;
}

static void make(pthread_mutex_t *mutex, int type) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, type);
    if (mutex == &robust)
        pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    ZOO_CHECK(pthread_mutex_init(mutex, &kind) == 0);
}

int main(void) {
    pthread_t waiter, dying;
    zoo_begin();
    make(&recursive, PTHREAD_MUTEX_RECURSIVE);
    make(&checking, PTHREAD_MUTEX_ERRORCHECK);
    make(&robust, PTHREAD_MUTEX_NORMAL);
    ZOO_CHECK(pthread_mutex_lock(&plain) == 0);
    ZOO_CHECK(pthread_mutex_lock(&recursive) == 0);
    ZOO_CHECK(pthread_mutex_lock(&recursive) == 0);
    ZOO_CHECK(pthread_mutex_lock(&checking) == 0);
    ZOO_CHECK(pthread_create(&waiter, NULL, wait_for_it, NULL) == 0);
    zoo_until_asleep(&waiter_id);

    int lives = zoo_save_point();

    ZOO_CHECK(pthread_mutex_trylock(&plain) == EBUSY && count == 0);
    ZOO_CHECK(pthread_mutex_unlock(&plain) == 0);
    ZOO_CHECK(pthread_join(waiter, NULL) == 0 && count == 1);
    /* Those that remember their owner by its id remember the old one: it is in docs/checkpoint.md. */
    int expected = lives ? EPERM : 0;
    ZOO_CHECK(pthread_mutex_unlock(&recursive) == expected);
    ZOO_CHECK(pthread_mutex_unlock(&checking) == expected);
    /* One that is taken from now on works, up to its owner's end. */
    ZOO_CHECK(pthread_create(&dying, NULL, die_with_it, NULL) == 0);
    ZOO_CHECK(pthread_join(dying, NULL) == 0);
    ZOO_CHECK(pthread_mutex_lock(&robust) == EOWNERDEAD);
    zoo_ok("mutexes");
}
