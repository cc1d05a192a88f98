/* A program with a malloc of its own that must not be called before main, as in some Lisps. The
 * program does not call the library, and is saved by a signal. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char pool[1 << 22];
static size_t used;
static int ready;

void *malloc(size_t len) {
    static const char text[] = "malloc before main\n";
    if (!ready) {
        (void)!write(2, text, sizeof text - 1);
        _exit(3);
    }
    void *at = pool + used;
    used += (len + 31) & ~(size_t)31;
    return at;
}

void *calloc(size_t count, size_t len) {
    return memset(malloc(count * len), 0, count * len);
}

void *realloc(void *old, size_t len) {
    char *at = malloc(len);
    return old ? memmove(at, old, len) : at;
}

void free(void *at) {
    (void)at;
}

int main(void) {
    char line[16];
    ready = 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    /* Until the standard input ends. */
    while (fgets(line, sizeof line, stdin))
        fputs(line, stdout);
    puts("end");
    return 0;
}
