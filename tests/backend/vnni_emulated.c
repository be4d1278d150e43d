/* Products with weights of 8 bits as VNNI has them, in plain C. */
#define SLI_VNNI_EMULATED
#define SLI_ISA_SUFFIX vnni_emulated
#include "backend/cpu/isa/panel_i8.c"
