/* Test cases of this folder: a name and a function that returns what is wrong, or nothing. main is in main.cpp. */
#ifndef SLI_TESTS_EMULATE_CASES_H
#define SLI_TESTS_EMULATE_CASES_H

#include <stdint.h>
#include <functional>
#include <string>
#include <vector>

struct emulate_case {
    std::string name;
    std::function<std::string(uint64_t seed)> test;
};
std::vector<emulate_case> &emulate_cases();
struct emulate_register {
    emulate_register(const std::string &name, std::function<std::string(uint64_t)> test) {
        emulate_cases().push_back({name, test});
    }
};
#define EMULATE_JOIN2(a, b) a##b
#define EMULATE_JOIN(a, b) EMULATE_JOIN2(a, b)
/* EMULATE_CASE("name") { ... seed ... return ""; } */
#define EMULATE_CASE(name)                                                                                          \
    static std::string EMULATE_JOIN(emulate_case_, __LINE__)(uint64_t seed);                                        \
    static const emulate_register EMULATE_JOIN(emulate_register_, __LINE__)(name,                                   \
                                                                            EMULATE_JOIN(emulate_case_, __LINE__)); \
    static std::string EMULATE_JOIN(emulate_case_, __LINE__)([[maybe_unused]] uint64_t seed)

extern int emulate_shape[3]; /* units, rows, steps that the caller wants; 0: as the case says */
std::string emulate_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
