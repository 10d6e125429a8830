/* B = the patches of images under a square filter, a column for each pixel that goes out: im2col.
 *
 *      images (EDGE x EDGE, CHANNELS each)           B
 *      +--------------+                              +---------------------+
 *      |  +----+      |                              |   |                 |
 *      |  |SIZE|-+    |     a patch of all     -->   |   | a column for    | CHANNELS * SIZE * SIZE
 *      |  +----+ |    |     channels is a column     |   | each pixel of   |
 *      |    +----+    |                              |   | every image     |
 *      +--------------+                              +---------------------+
 *        STRIDE apart                                  columns = images * OUT * OUT
 *
 *      B[row * columns + column] = image[channel][y * STRIDE - PAD + fy][x * STRIDE - PAD + fx], zero past an edge
 *
 * with row = (channel * SIZE + fy) * SIZE + fx, and column = (image * OUT + y) * OUT + x. Then a convolution is one
 * product: filters (a row each) times B.
 *
 * One work-item copies FY rows of a patch of one channel: one where many work-items are wanted, all SIZE of them on a
 * CPU, where finding out which pixel it is costs more than copying it. Neighbours read neighbours of an image, STRIDE
 * apart, and write side by side. All divisors are constants. */
#include "common.clh"

#if !defined(CHANNELS) || !defined(EDGE) || !defined(SIZE) || !defined(STRIDE) || !defined(PAD) || !defined(OUT)
#error "CHANNELS, EDGE, SIZE, STRIDE, PAD and OUT must be defined"
#endif
#if !defined(FY) || SIZE % FY
#error "FY must be defined, and SIZE be a multiple of it"
#endif

__kernel void im2col(int columns, __global const REAL *restrict images, __global REAL *restrict B)
{
    const int column = get_global_id(0), part = get_global_id(1);
    if (column >= columns)
        return;
    const int channel = part / (SIZE / FY), fy0 = part % (SIZE / FY) * FY;
    const int y0 = column / OUT % OUT * STRIDE - PAD, x0 = column % OUT * STRIDE - PAD;
    __global const REAL *image = images + ((size_t)(column / (OUT * OUT)) * CHANNELS + channel) * EDGE * EDGE;

    for (int fy = fy0; fy < fy0 + FY; fy++)
        for (int fx = 0; fx < SIZE; fx++) {
            const int y = y0 + fy, x = x0 + fx;
            const bool inside = y >= 0 && y < EDGE && x >= 0 && x < EDGE;
            B[(size_t)((channel * SIZE + fy) * SIZE + fx) * columns + column] = inside ? image[y * EDGE + x] : (REAL)0;
        }
}
