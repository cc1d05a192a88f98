/* Streams of the C library, with input read ahead and output not written yet. */
#include "zoo.h"

int main(void) {
    char path[4096], line[64];
    zoo_begin();
    snprintf(path, sizeof path, "%s/stream", getenv("ZOO_FOLDER"));
    FILE *out = fopen(path, "w");
    for (int n = 0; n < 100; n++)
        fprintf(out, "line %d\n", n);
    ZOO_CHECK(out && fclose(out) == 0);
    FILE *in = fopen(path, "r");
    ZOO_CHECK(in && fgets(line, sizeof line, in) && fgets(line, sizeof line, in));
    strcat(path, ".out");
    out = fopen(path, "w");
    ZOO_CHECK(out && fputs("buffered, ", out) >= 0);
    zoo_save_point();
    ZOO_CHECK(fgets(line, sizeof line, in) && strcmp(line, "line 2\n") == 0);
    ZOO_CHECK(ungetc('x', in) == 'x' && fseek(in, -7, SEEK_END) == 0);
    ZOO_CHECK(fgets(line, sizeof line, in) && strcmp(line, "ine 99\n") == 0);
    ZOO_CHECK(fputs("and written", out) >= 0 && fclose(out) == 0);
    in = freopen(path, "r", in);
    ZOO_CHECK(in && fgets(line, sizeof line, in) && strcmp(line, "buffered, and written") == 0);
    zoo_ok("streams");
}
