/* Children that end before the save, and children of the restored process. */
#include "zoo.h"
#include <sys/wait.h>

static volatile int before, after;

static void on_before(void) { before++; }
static void on_after(void) { after++; }

static void run_one(void) {
    char text[32] = "";
    int status, then = before;
    pid_t child = fork();
    if (child == 0)
        _exit(before == then + 1 ? 7 : 8);
    ZOO_CHECK(child > 0 && waitpid(child, &status, 0) == child);
    ZOO_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7 && after == before);
    FILE *pipe = popen("echo from the child", "r");
    ZOO_CHECK(pipe && fgets(text, sizeof text, pipe) && pclose(pipe) == 0);
    ZOO_CHECK(strcmp(text, "from the child\n") == 0);
}

int main(void) {
    zoo_begin();
    pthread_atfork(on_before, on_after, NULL);
    run_one();
    zoo_save_point();
    run_one();
    /* The copy that wrote the image is no child of the program any more. */
    ZOO_CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    zoo_ok("children");
}
