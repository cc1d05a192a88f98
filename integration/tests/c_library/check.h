/* What the programs of this test have in common. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vm.h>

/* Ends the program with the words of the library if a condition does not hold. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s does not hold: %s\n", __FILE__, __LINE__, #condition,       \
                    vm_last_error());                                                              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
