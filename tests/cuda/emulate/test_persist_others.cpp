/* The instances of backward, and those that make their input side. */
#define EMULATE_OTHERS
#include "test_persist.cpp"
