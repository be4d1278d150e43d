/* Products with inputs of which each row has a single 1 and zeros, as a one-hot layer makes them: columns of W instead of W x, and
 * sums of rows instead of dz^T x. */
#ifndef SLI_CPU_ONE_HOT_H
#define SLI_CPU_ONE_HOT_H

#include "backend/cpu/isa/isa.h"
#include "backend/cpu/sums.h"

/* column[rows] of x[rows][inputs], for panels of W; false: not of that kind, panels of which no line can be read, or a product is as good. */
bool sli_one_hot_rows(const sli_isa_ops *ops, const sli_panel_ops *panels, const void *const *x, int rows, int inputs,
                      int *column);
/* to[panel * apart + row * columns] = W[:][column of row]: `count` panels, `bytes` each, of so many vectors. */
void sli_one_hot_lines(const sli_panel_ops *ops, int vectors, int count, const char *panels, size_t bytes,
                       const int *column, int rows, float *to, ptrdiff_t apart);
/* d W += dz^T x; false, and nothing is done: likewise. */
bool sli_one_hot_kernel(const sli_sums *sums);

#endif
