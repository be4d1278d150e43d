/* Tests that use a cache folder of their own give the process's back: kernels that other tests compile are kept in it. */
#ifndef TUNE_CACHE_FOLDER_H
#define TUNE_CACHE_FOLDER_H

void cache_keep(void); /* once more does nothing */
void cache_restore(void);

#endif
