/* A library that was loaded at run time, with state of its own and of each thread. Another library
 * can be loaded after the restore. */
#include "zoo.h"
#include <dlfcn.h>
#include <math.h>

int main(int count, char **arguments) {
    zoo_begin();
    ZOO_CHECK(count == 2);
    void *library = dlopen(arguments[1], RTLD_NOW);
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    ZOO_CHECK(library != NULL);
    int (*next)(void) = (int (*)(void))dlsym(library, "counter_next");
    int (*next_of_thread)(void) = (int (*)(void))dlsym(library, "counter_next_of_thread");
    ZOO_CHECK(next && next_of_thread && next() == 1 && next_of_thread() == 101);
    zoo_save_point();
    ZOO_CHECK(next() == 2 && next_of_thread() == 102);
    ZOO_CHECK(dlsym(library, "counter_next") == (void *)next);
    void *mathematics = dlopen("libm.so.6", RTLD_NOW);
    ZOO_CHECK(mathematics != NULL);
    double (*cosine)(double) = (double (*)(double))dlsym(mathematics, "cos");
    ZOO_CHECK(cosine && cosine(0) == 1.0);
    int *ended = (int *)dlsym(library, "counter_value");
    ZOO_CHECK(ended && *ended == 2 && dlclose(library) == 0);
    zoo_ok("library");
}
