/* Generators in memory continue their sequences. The kernel's generator returns new numbers, so that
 * no two restored processes draw the same. The same holds for C libraries that keep state of the
 * kernel's generator in droppable memory: a restored process gets it empty, as a child does. */
#include "zoo.h"
#include <dlfcn.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>

#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 8
#endif

static long page;

/* Two pages between other writable memory, which keeps its content. */
static unsigned char *new_memory(void) {
    int rights = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    unsigned char *all = mmap(NULL, 4 * page, rights, flags, -1, 0);
    ZOO_CHECK(all != MAP_FAILED);
    memset(all, 3, 4 * page);
    int may_be_emptied = MAP_DROPPABLE | MAP_ANONYMOUS | MAP_FIXED;
    void *memory = mmap(all + page, 2 * page, rights, may_be_emptied, -1, 0);
    if (memory == MAP_FAILED) {
        printf("note: this kernel knows no memory that may be emptied\n");
        return NULL;
    }
    memset(memory, 4, page);
    return memory;
}

static void is_wiped_in_a_child(unsigned char *memory) {
    memory[1] = 5;
    pid_t child = fork();
    if (child == 0)
        _exit(memory[1]);
    int status;
    ZOO_CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* The vdso's getrandom, called as C libraries call it. */
typedef ssize_t generator(void *numbers, size_t len, unsigned flags, void *state, size_t state_len);

static generator *the_generator(size_t *state_len) {
    struct {
        uint32_t state_len, rights, flags, reserved[13];
    } wants;
    void *vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
    generator *found = vdso ? (generator *)dlsym(vdso, "__vdso_getrandom") : NULL;
    if (found == NULL || found(NULL, 0, 0, &wants, ~(size_t)0) != 0) {
        printf("note: this kernel puts no generator into processes\n");
        return NULL;
    }
    ZOO_CHECK(wants.flags == (MAP_DROPPABLE | MAP_ANONYMOUS) && wants.state_len <= page);
    *state_len = wants.state_len;
    return found;
}

int main(void) {
    int expected[3];
    unsigned own = 7;
    unsigned char before[16], after[16];
    page = sysconf(_SC_PAGESIZE);
    unsigned char *memory = new_memory();
    size_t state_len = 0;
    generator *drawn = memory ? the_generator(&state_len) : NULL;
    uint64_t number = 0;
    if (drawn)
        ZOO_CHECK(drawn(&number, sizeof number, 0, memory + page, state_len) == sizeof number);
    zoo_begin();
    for (int turn = 0; turn < 2; turn++) {
        srand(5), srand48(6), own = 7;
        for (int n = 0; n < 100; n++)
            rand(), lrand48(), rand_r(&own);
        if (turn == 0)
            expected[0] = rand(), expected[1] = (int)lrand48(), expected[2] = rand_r(&own);
    }
    ZOO_CHECK(getrandom(before, sizeof before, 0) == sizeof before);
    int lives = zoo_save_point();
    if (memory != NULL) {
        ZOO_CHECK(memory[-1] == 3 && memory[2 * page] == 3);
        for (long at = 0; lives > 0 && at < 2 * page; at++)
            ZOO_CHECK(memory[at] == 0);
        is_wiped_in_a_child(memory);
    }
    if (drawn) {
        ZOO_CHECK(drawn(&number, sizeof number, 0, memory + page, state_len) == sizeof number);
        printf("note: drew %016llx in the process\n", (unsigned long long)number);
    }
    ZOO_CHECK(rand() == expected[0] && lrand48() == expected[1] && rand_r(&own) == expected[2]);
    ZOO_CHECK(getrandom(after, sizeof after, 0) == sizeof after);
    ZOO_CHECK(memcmp(before, after, sizeof before) != 0);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 36)
    printf("note: drew %08x%08x\n", arc4random(), arc4random());
#endif
    zoo_ok("numbers");
}
