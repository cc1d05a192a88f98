/* Exceptions during a save, containers, and thread-local values that are destroyed. */
#include "zoo.h"
#include <atomic>
#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

static std::atomic<int> destroyed;

struct Own {
    std::string text;
    ~Own() { destroyed += text.empty() ? 0 : 1; }
};

static thread_local Own own;

struct Guard {
    ~Guard() { destroyed += 100; }
};

static void throws(int depth) {
    Guard guard;
    if (depth > 0)
        return throws(depth - 1);
    zoo_save_point();
    throw std::runtime_error("thrown after it");
}

int main() {
    zoo_begin();
    std::mutex mutex;
    std::condition_variable condition;
    bool go = false;
    std::promise<int> promise;
    std::atomic<int> ready{0};
    std::thread threads[4];
    for (auto &thread : threads)
        thread = std::thread([&] {
            own.text = "set";
            std::unique_lock<std::mutex> held(mutex);
            ready++;
            condition.wait(held, [&] { return go; });
            ZOO_CHECK(own.text == "set");
        });
    auto future = std::async(std::launch::async, [&] { return promise.get_future().get() + 1; });
    while (ready < 4)
        std::this_thread::yield();
    std::map<std::string, std::shared_ptr<int>> numbers;
    for (int n = 0; n < 1000; n++)
        numbers[std::to_string(n)] = std::make_shared<int>(n);
    std::ostringstream stream;
    stream << "before, ";
    try {
        try {
            throw 17;
        } catch (int number) {
            /* The save happens while an exception is being handled. */
            throws(10);
        }
    } catch (const std::runtime_error &error) {
        ZOO_CHECK(std::string(error.what()) == "thrown after it");
    }
    ZOO_CHECK(destroyed == 1100);
    for (int n = 0; n < 1000; n++)
        ZOO_CHECK(*numbers.at(std::to_string(n)) == n);
    stream << "after";
    ZOO_CHECK(stream.str() == "before, after");
    promise.set_value(1);
    ZOO_CHECK(future.get() == 2);
    {
        std::lock_guard<std::mutex> held(mutex);
        go = true;
    }
    condition.notify_all();
    for (auto &thread : threads)
        thread.join();
    ZOO_CHECK(destroyed == 1104);
    zoo_ok("exceptions");
}
