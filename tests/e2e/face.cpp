// hvd.h as a C++ program sees it: compiled as C++17 with every warning an error, it runs one operation of each
// form. Prints "rank N: all right".
#include <hvd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

static_assert(sizeof(hvd_status) == sizeof(int) && sizeof(hvd_dtype) == sizeof(int) &&
                  sizeof(hvd_op) == sizeof(int) && sizeof(hvd_compression) == sizeof(int),
              "enumerations are ints to the library");
static_assert(sizeof(hvd_options) == 64 && std::is_standard_layout<hvd_options>::value &&
                  std::is_trivially_copyable<hvd_options>::value,
              "what was compiled yesterday passes 64 bytes");
static_assert(sizeof(hvd_handle) == 8 && sizeof(hvd_set) == 4, "numbers, not pointers");

static int wrong(const char *what)
{
    std::fprintf(stderr, "%s: %s\n", what, hvd_last_error());
    return 1;
}

int main()
{
    const std::string version =
        std::to_string(HVD_VERSION_MAJOR) + "." + std::to_string(HVD_VERSION_MINOR) + ".";
    if (version != std::string(hvd_version()).substr(0, version.size()))
        return wrong("the library has another version than its header");
    if (hvd_init() != HVD_SUCCESS)
        return wrong("hvd_init");

    const int size = hvd_size(), rank = hvd_rank();
    std::vector<float> in(1000, static_cast<float>(rank + 1)), out(1000);
    hvd_options options = {};
    options.postscale = 2;
    hvd_handle handle;
    if (hvd_allreduce_async("x", in.data(), out.data(), in.size(), HVD_FLOAT32, HVD_SUM, &options, &handle) ||
        hvd_wait(handle) || out[999] != static_cast<float>(size * (size + 1)))
        return wrong("hvd_allreduce_async");
    if (hvd_wait(handle) != HVD_ERR_INVALID)
        return wrong("a handle that was waited for");

    hvd_options later = {};
    later.reserved[sizeof later.reserved / sizeof *later.reserved - 1] = 1;
    if (hvd_barrier(&later) != HVD_ERR_INVALID || !std::strstr(hvd_last_error(), "reserved"))
        return wrong("an option of a later version");
    if (hvd_barrier(nullptr) || hvd_shutdown())
        return wrong("the end");

    std::printf("rank %d: all right\n", rank);
    return 0;
}
