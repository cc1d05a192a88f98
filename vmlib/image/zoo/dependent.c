/* Linked with a library that is removed before the restore. */
#include "zoo.h"

int counter_next(void);

int main(void) {
    zoo_begin();
    ZOO_CHECK(counter_next() == 1);
    zoo_save_point();
    ZOO_CHECK(counter_next() == 2);
    zoo_ok("dependent");
}
