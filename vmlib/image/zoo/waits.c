/* Threads that wait at a barrier and at condition variables with mutexes of several kinds, in private
 * memory and in process-shared memory. */
#include "zoo.h"
#include <sys/mman.h>
#include <threads.h>

enum { PAIRS = 4 };

static struct shared {
    pthread_mutex_t mutex[PAIRS];
    pthread_cond_t condition[PAIRS];
    pthread_barrier_t barrier;
    volatile int ready[PAIRS], woken[PAIRS], ids[PAIRS + 1], passed;
} *all;
static mtx_t recursive;

static void *wait_for_it(void *number) {
    int pair = (int)(long)number;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 300;
    ZOO_CHECK(pthread_mutex_lock(&all->mutex[pair]) == 0);
    all->ids[pair] = zoo_tid();
    while (!all->ready[pair]) {
        if (pair % 2 == 0)
            ZOO_CHECK(pthread_cond_wait(&all->condition[pair], &all->mutex[pair]) == 0);
        else
            ZOO_CHECK(pthread_cond_timedwait(&all->condition[pair], &all->mutex[pair], &end) == 0);
    }
    all->woken[pair] = 1;
    ZOO_CHECK(pthread_mutex_unlock(&all->mutex[pair]) == 0);
    return NULL;
}

static void *meet(void *unused) {
    all->ids[PAIRS] = zoo_tid();
    int last = pthread_barrier_wait(&all->barrier);
    ZOO_CHECK(last == 0 || last == PTHREAD_BARRIER_SERIAL_THREAD);
    all->passed = 1;
    return unused;
}

int main(void) {
    static const int types[PAIRS] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE,
                                     PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_NORMAL};
    pthread_t threads[PAIRS], meeting;
    zoo_begin();
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ZOO_CHECK(all != MAP_FAILED);
    for (long pair = 0; pair < PAIRS; pair++) {
        pthread_mutexattr_t how;
        pthread_condattr_t what;
        pthread_mutexattr_init(&how);
        pthread_condattr_init(&what);
        pthread_mutexattr_settype(&how, types[pair]);
        pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
        pthread_condattr_setpshared(&what, PTHREAD_PROCESS_SHARED);
        if (pair == 3)
            pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
        ZOO_CHECK(pthread_mutex_init(&all->mutex[pair], &how) == 0);
        ZOO_CHECK(pthread_cond_init(&all->condition[pair], &what) == 0);
    }
    pthread_barrierattr_t how;
    pthread_barrierattr_init(&how);
    pthread_barrierattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    ZOO_CHECK(pthread_barrier_init(&all->barrier, &how, 2) == 0);
    ZOO_CHECK(mtx_init(&recursive, mtx_plain | mtx_recursive) == thrd_success);
    ZOO_CHECK(mtx_lock(&recursive) == thrd_success);
    ZOO_CHECK(pthread_create(&meeting, NULL, meet, NULL) == 0);
    for (long pair = 0; pair < PAIRS; pair++)
        ZOO_CHECK(pthread_create(&threads[pair], NULL, wait_for_it, (void *)pair) == 0);
    for (int n = 0; n <= PAIRS; n++)
        zoo_until_asleep(&all->ids[n]);
    /* This thread holds each mutex, so that the woken threads have to wait once more. */
    for (int pair = 0; pair < PAIRS; pair++)
        ZOO_CHECK(pthread_mutex_lock(&all->mutex[pair]) == 0);

    zoo_save_point();

    for (int pair = 0; pair < PAIRS; pair++) {
        ZOO_CHECK(!all->woken[pair]);
        all->ready[pair] = 1;
        ZOO_CHECK(pthread_cond_signal(&all->condition[pair]) == 0);
        ZOO_CHECK(pthread_mutex_unlock(&all->mutex[pair]) == 0);
        ZOO_CHECK(pthread_join(threads[pair], NULL) == 0 && all->woken[pair]);
    }
    ZOO_CHECK(!all->passed);
    meet(NULL);
    ZOO_CHECK(pthread_join(meeting, NULL) == 0);
    ZOO_CHECK(mtx_trylock(&recursive) == thrd_success);
    ZOO_CHECK(mtx_unlock(&recursive) == thrd_success && mtx_unlock(&recursive) == thrd_success);
    zoo_ok("waits");
}
