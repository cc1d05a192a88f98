/* The library that library.c loads. */
int counter_value;
static __thread int of_thread = 100;

int counter_next(void) {
    return ++counter_value;
}

int counter_next_of_thread(void) {
    return ++of_thread;
}
