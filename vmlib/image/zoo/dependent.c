/* Linked with a library that is not there any more where it is brought back. */
#include "zoo.h"

int counter_next(void);

int main(void) {
    zoo_begin();
    ZOO_CHECK(counter_next() == 1);
    zoo_save_point();
    ZOO_CHECK(counter_next() == 2);
    zoo_ok("dependent");
}
