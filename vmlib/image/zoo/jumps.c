/* Jumps to places from before the save, and stacks that the program itself switches between. */
#include "zoo.h"
#include <setjmp.h>
#include <ucontext.h>

static jmp_buf back;
static sigjmp_buf back_with_mask;
static ucontext_t home, away;
static int turns;
static volatile int jumps = 1;

static void coroutine(void) {
    for (int own = 0;; own++) {
        turns = own;
        ZOO_CHECK(swapcontext(&away, &home) == 0);
    }
}

static void deeper(int depth) {
    if (depth == 0) {
        zoo_save_point();
        if (jumps)
            longjmp(back, 42);
        return;
    }
    deeper(depth - 1);
}

int main(void) {
    volatile int local = 5;
    sigset_t set;
    zoo_begin();
    getcontext(&away);
    away.uc_stack.ss_sp = malloc(256 << 10);
    away.uc_stack.ss_size = 256 << 10;
    makecontext(&away, coroutine, 0);
    for (int n = 0; n < 3; n++)
        ZOO_CHECK(swapcontext(&home, &away) == 0);
    ZOO_CHECK(turns == 2);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    if (sigsetjmp(back_with_mask, 1) == 0) {
        pthread_sigmask(SIG_BLOCK, &set, NULL);
        int value = setjmp(back);
        if (value == 0) {
            local = 6;
            deeper(50);
        }
        ZOO_CHECK(value == 42 && local == 6);
        ZOO_CHECK(swapcontext(&home, &away) == 0 && turns == 3);
        siglongjmp(back_with_mask, 1);
    }
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    ZOO_CHECK(!sigismember(&set, SIGUSR1));
    zoo_ok("jumps");
}
