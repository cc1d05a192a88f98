/* Reader-writer locks of pthreads, held for writing by two threads, and for reading, while other
 * threads wait for them. */
#include "zoo.h"

static pthread_rwlock_t own = PTHREAD_RWLOCK_INITIALIZER, other = PTHREAD_RWLOCK_INITIALIZER,
                        read_by_two = PTHREAD_RWLOCK_INITIALIZER;
static volatile int ids[3], holder_has, writers, readers;
static pthread_barrier_t go_on;

static void *hold(void *unused) {
    ZOO_CHECK(pthread_rwlock_trywrlock(&other) == 0);
    ZOO_CHECK(pthread_rwlock_rdlock(&read_by_two) == 0);
    holder_has = 1;
    pthread_barrier_wait(&go_on);
    ZOO_CHECK(pthread_rwlock_rdlock(&other) == EDEADLK);
    ZOO_CHECK(pthread_rwlock_unlock(&other) == 0);
    ZOO_CHECK(pthread_rwlock_unlock(&read_by_two) == 0);
    return unused;
}

static void *write_it(void *number) {
    pthread_rwlock_t *lock = number ? &own : &read_by_two;
    ids[number ? 0 : 1] = zoo_tid();
    ZOO_CHECK(pthread_rwlock_wrlock(lock) == 0);
    ZOO_CHECK(pthread_rwlock_wrlock(lock) == EDEADLK);
    writers++;
    ZOO_CHECK(pthread_rwlock_unlock(lock) == 0);
    return NULL;
}

static void *read_it(void *unused) {
    ids[2] = zoo_tid();
    ZOO_CHECK(pthread_rwlock_rdlock(&own) == 0);
    readers++;
    ZOO_CHECK(pthread_rwlock_unlock(&own) == 0);
    return unused;
}

int main(void) {
    pthread_t holder, threads[3];
    zoo_begin();
    pthread_barrier_init(&go_on, NULL, 2);
    ZOO_CHECK(pthread_rwlock_wrlock(&own) == 0);
    ZOO_CHECK(pthread_rwlock_rdlock(&read_by_two) == 0);
    ZOO_CHECK(pthread_create(&holder, NULL, hold, NULL) == 0);
    while (!holder_has)
        sched_yield();
    ZOO_CHECK(pthread_create(&threads[0], NULL, write_it, &own) == 0);
    ZOO_CHECK(pthread_create(&threads[1], NULL, write_it, NULL) == 0);
    ZOO_CHECK(pthread_create(&threads[2], NULL, read_it, NULL) == 0);
    for (int n = 0; n < 3; n++)
        zoo_until_asleep(&ids[n]);

    zoo_save_point();

    ZOO_CHECK(writers == 0 && readers == 0);
    ZOO_CHECK(pthread_rwlock_trywrlock(&other) == EBUSY);
    ZOO_CHECK(pthread_rwlock_unlock(&own) == 0);
    ZOO_CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[2], NULL) == 0);
    ZOO_CHECK(writers == 1 && readers == 1);
    ZOO_CHECK(pthread_rwlock_unlock(&read_by_two) == 0);
    pthread_barrier_wait(&go_on);
    ZOO_CHECK(pthread_join(holder, NULL) == 0 && pthread_join(threads[1], NULL) == 0);
    for (int turn = 0; turn < 3; turn++) {
        ZOO_CHECK(pthread_rwlock_wrlock(&own) == 0 && pthread_rwlock_unlock(&own) == 0);
        ZOO_CHECK(pthread_rwlock_wrlock(&other) == 0 && pthread_rwlock_unlock(&other) == 0);
        ZOO_CHECK(pthread_rwlock_rdlock(&read_by_two) == 0);
        ZOO_CHECK(pthread_rwlock_tryrdlock(&read_by_two) == 0);
        for (int n = 0; n < 2; n++)
            ZOO_CHECK(pthread_rwlock_unlock(&read_by_two) == 0);
    }
    zoo_ok("rwlocks");
}
