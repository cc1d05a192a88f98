/* Waits for semaphores: a wait without a deadline continues, a wait with one may end early
 * (signal(7)). */
#include "zoo.h"
#include <semaphore.h>

static sem_t one, other;
static volatile int ids[3];
static int error;

static void *wait_for_ever(void *unused) {
    ids[0] = zoo_tid();
    ZOO_CHECK(sem_wait(&one) == 0);
    return unused;
}

static void *wait_for_some_time(void *unused) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += 300 * 1000 * 1000;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    ids[1] = zoo_tid();
    error = sem_timedwait(&other, &end) == 0 ? 0 : errno;
    return unused;
}

static void *wait_again_and_again(void *unused) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 300;
    ids[2] = zoo_tid();
    while (sem_timedwait(&one, &end) != 0)
        ZOO_CHECK(errno == EINTR);
    return unused;
}

int main(void) {
    pthread_t threads[3];
    void *(*work[3])(void *) = {wait_for_ever, wait_for_some_time, wait_again_and_again};
    zoo_begin();
    sem_init(&one, 0, 0);
    sem_init(&other, 0, 0);
    for (int n = 0; n < 3; n++)
        ZOO_CHECK(pthread_create(&threads[n], NULL, work[n], NULL) == 0);
    for (int n = 0; n < 3; n++)
        zoo_until_asleep(&ids[n]);
    zoo_save_point();
    sem_post(&one);
    sem_post(&one);
    for (int n = 0; n < 3; n++)
        ZOO_CHECK(pthread_join(threads[n], NULL) == 0);
    ZOO_CHECK(error == EINTR || error == ETIMEDOUT);
    ZOO_CHECK(sem_trywait(&one) == -1 && errno == EAGAIN);
    zoo_ok("semaphores");
}
