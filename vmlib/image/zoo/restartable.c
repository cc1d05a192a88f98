/* Each thread is registered for restartable sequences, if the C library does that: the kernel writes
 * the number of the thread's processor into the registered memory. */
#include "zoo.h"
#include <sys/rseq.h>

static pthread_barrier_t before, after;

static volatile struct rseq *own(void) {
    return (volatile struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
}

static void look(void) {
    if (__rseq_size == 0)
        return;
    ZOO_CHECK((int)own()->cpu_id >= 0 && own()->cpu_id == own()->cpu_id_start);
    /* A second registration is refused as busy; a first one would succeed. */
    ZOO_CHECK(syscall(SYS_rseq, own(), 32, 0, RSEQ_SIG) == -1 && errno == EBUSY);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < 2; cpu++) {
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof one, &one) == 0)
            ZOO_CHECK((int)own()->cpu_id == cpu && sched_getcpu() == cpu);
        CPU_CLR(cpu, &one);
    }
}

static void *work(void *unused) {
    pthread_barrier_wait(&before);
    pthread_barrier_wait(&after);
    look();
    return unused;
}

static void *look_in_a_thread(void *unused) {
    look();
    return unused;
}

int main(void) {
    pthread_t threads[3], late;
    zoo_begin();
    pthread_barrier_init(&before, NULL, 4);
    pthread_barrier_init(&after, NULL, 4);
    for (int n = 0; n < 3; n++)
        ZOO_CHECK(pthread_create(&threads[n], NULL, work, NULL) == 0);
    pthread_barrier_wait(&before);
    zoo_save_point();
    pthread_barrier_wait(&after);
    look();
    for (int n = 0; n < 3; n++)
        ZOO_CHECK(pthread_join(threads[n], NULL) == 0);
    ZOO_CHECK(pthread_create(&late, NULL, look_in_a_thread, NULL) == 0);
    ZOO_CHECK(pthread_join(late, NULL) == 0);
    if (__rseq_size == 0)
        printf("note: the C library registers nothing\n");
    zoo_ok("restartable");
}
