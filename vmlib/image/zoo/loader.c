/* Loads and unloads libraries all the time, in as many threads as there are libraries. The program
 * does not call the library that saves it. A signal saves it, nearly always within the loader. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *load(void *path) {
    for (long count = 1;; count++) {
        void *library = dlopen(path, RTLD_NOW);
        int (*next)(void) = library ? (int (*)(void))dlsym(library, "counter_next") : NULL;
        if (!next || next() != 1 || dlclose(library) != 0) {
            fprintf(stderr, "%s\n", dlerror());
            exit(1);
        }
        if (count % 200 == 0) {
            printf("%s %ld\n", (char *)path, count);
            fflush(stdout);
        }
    }
    return NULL;
}

int main(int count, char **paths) {
    pthread_t thread;
    for (int index = 2; index < count; index++)
        pthread_create(&thread, NULL, load, paths[index]);
    load(paths[1]);
}
