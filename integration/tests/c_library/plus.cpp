// The header in a C++ program, which throws and catches around its calls.
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>
#include <vm.h>

static int check(int code)
{
    if (code < 0)
        throw std::runtime_error(std::string(vm_strerror(code)) + ": " + vm_last_error());
    return code;
}

int main()
{
    try {
        vm_task *vm;
        check(vm_init(&vm));
        std::vector<double> sent(1000, 0.5), received(1000);
        check(vm_send_array(vm, vm_mytid(vm), 1, sent.data(), sent.size(), VM_DOUBLE));
        vm_envelope envelope;
        check(vm_recv_array(vm, VM_ANY_SOURCE, VM_ANY_TAG, received.data(), received.size(),
                            VM_DOUBLE, VM_FOREVER, &envelope));
        try {
            check(vm_send(vm, VM_TID_NONE, 1, nullptr, 0));
        } catch (const std::runtime_error &error) {
            std::printf("%s\n", error.what());
            return received == sent && envelope.count == 1000 ? 0 : 1;
        }
    } catch (const std::runtime_error &error) {
        std::fprintf(stderr, "%s\n", error.what());
    }
    return 1;
}
