/* A team of threads, saved by one of them within a parallel region, and another region later. */
#include "zoo.h"
#include <omp.h>

int main(void) {
    static double parts[4], values[4000];
    zoo_begin();
    omp_set_dynamic(0);
#pragma omp parallel num_threads(4)
    {
        int me = omp_get_thread_num();
        parts[me] = me + 0.5;
#pragma omp barrier
#pragma omp single
        zoo_save_point();
        parts[me] *= 2;
#pragma omp barrier
#pragma omp for schedule(dynamic, 10)
        for (int n = 0; n < 4000; n++)
            values[n] = n * parts[0];
    }
    double sum = 0;
#pragma omp parallel for num_threads(4) reduction(+ : sum)
    for (int n = 0; n < 4000; n++)
        sum += values[n];
    ZOO_CHECK(sum == 3999.0 * 4000 / 2);
    for (int n = 0; n < 4; n++)
        ZOO_CHECK(parts[n] == 2 * n + 1);
    zoo_ok("openmp");
}
