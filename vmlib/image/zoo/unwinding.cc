/* Saves during the unwinding of an exception, in a destructor, while another exception is kept in a
 * pointer. Another thread handles an exception at the same time, and throws it again. */
#include "zoo.h"
#include <atomic>
#include <exception>
#include <future>
#include <stdexcept>
#include <string>

static int passed;

struct Saves {
    ~Saves() {
        ZOO_CHECK(std::uncaught_exceptions() == 1);
        zoo_save_point();
        ZOO_CHECK(std::uncaught_exceptions() == 1);
        try {
            throw 7;
        } catch (int number) {
            passed += number;
        }
    }
};

struct Counts {
    ~Counts() { passed += 100; }
};

[[noreturn]] static void deeper(int depth) {
    Counts counts;
    if (depth > 0)
        deeper(depth - 1);
    throw std::runtime_error("on its way");
}

static void passes() {
    Counts counts;
    Saves saves;
    deeper(10);
}

static std::string handles(std::atomic<int> *id, std::shared_future<void> go) {
    try {
        try {
            deeper(0);
        } catch (const std::runtime_error &) {
            *id = zoo_tid();
            go.wait();
            throw;
        }
    } catch (const std::exception &error) {
        return error.what();
    }
    return "";
}

int main() {
    zoo_begin();
    std::promise<void> go;
    std::atomic<int> id{0};
    auto other = std::async(std::launch::async, handles, &id, go.get_future().share());
    while (!id)
        sched_yield();
    passed = 0;
    auto kept = std::make_exception_ptr(std::logic_error("kept"));
    try {
        passes();
        ZOO_CHECK(false);
    } catch (const std::runtime_error &error) {
        ZOO_CHECK(error.what() == std::string("on its way") && passed == 7 + 12 * 100);
    }
    try {
        std::rethrow_exception(kept);
    } catch (const std::logic_error &error) {
        ZOO_CHECK(error.what() == std::string("kept"));
    }
    go.set_value();
    ZOO_CHECK(other.get() == "on its way");
    zoo_ok("unwinding");
}
