/* Arenas of the allocator, of several threads, which continue to be used, grown and freed. */
#include "zoo.h"
#include <malloc.h>

enum { THREADS = 8, PIECES = 2000 };
static pthread_barrier_t saved;
static volatile int ready;

static void *allocate(void *seed) {
    unsigned own = (unsigned)(long)seed;
    static __thread unsigned char *pieces[PIECES];
    static __thread unsigned sizes[PIECES];
    for (int turn = 0; turn < 2; turn++) {
        for (int n = 0; n < PIECES; n++) {
            if (pieces[n]) {
                for (unsigned at = 0; at < sizes[n]; at += 64)
                    ZOO_CHECK(pieces[n][at] == (unsigned char)(n + (long)seed));
                if (rand_r(&own) % 2) {
                    free(pieces[n]);
                    pieces[n] = NULL;
                    continue;
                }
            }
            sizes[n] = 1 + rand_r(&own) % (n % 100 ? 600 : 300000);
            pieces[n] = realloc(pieces[n], sizes[n]);
            memset(pieces[n], (unsigned char)(n + (long)seed), sizes[n]);
        }
        if (turn == 0) {
            __sync_fetch_and_add(&ready, 1);
            pthread_barrier_wait(&saved);
        }
    }
    for (int n = 0; n < PIECES; n++)
        free(pieces[n]);
    return seed;
}

int main(void) {
    pthread_t threads[THREADS];
    zoo_begin();
    pthread_barrier_init(&saved, NULL, THREADS + 1);
    for (long n = 0; n < THREADS; n++)
        ZOO_CHECK(pthread_create(&threads[n], NULL, allocate, (void *)n) == 0);
    while (ready < THREADS)
        sched_yield();
    zoo_save_point();
    pthread_barrier_wait(&saved);
    for (int n = 0; n < THREADS; n++)
        ZOO_CHECK(pthread_join(threads[n], NULL) == 0);
    malloc_trim(0);
    zoo_ok("arenas");
}
