/* Generators of random numbers go on where they were; the kernel's numbers are new ones, so that no
 * two lives draw the same. */
#include "zoo.h"
#include <sys/random.h>

int main(void) {
    int expected[3];
    unsigned own = 7;
    unsigned char before[16], after[16];
    zoo_begin();
    for (int turn = 0; turn < 2; turn++) {
        srand(5), srand48(6), own = 7;
        for (int n = 0; n < 100; n++)
            rand(), lrand48(), rand_r(&own);
        if (turn == 0)
            expected[0] = rand(), expected[1] = (int)lrand48(), expected[2] = rand_r(&own);
    }
    ZOO_CHECK(getrandom(before, sizeof before, 0) == sizeof before);
    zoo_save_point();
    ZOO_CHECK(rand() == expected[0] && lrand48() == expected[1] && rand_r(&own) == expected[2]);
    ZOO_CHECK(getrandom(after, sizeof after, 0) == sizeof after);
    ZOO_CHECK(memcmp(before, after, sizeof before) != 0);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 36)
    printf("note: drew %08x%08x\n", arc4random(), arc4random());
#endif
    zoo_ok("numbers");
}
