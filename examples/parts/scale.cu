// One block scales one row. Its first thread fetches the row's factor.
extern "C" __global__ void scale_rows(float* y, const float* x, const float* factors, long long columns) {
  extern __shared__ float factor[];
  long long row = blockIdx.x;
  if (threadIdx.x == 0) factor[0] = factors[row];
  __syncthreads();
  for (long long column = threadIdx.x; column < columns; column += blockDim.x) {
    y[row * columns + column] = factor[0] * x[row * columns + column];
  }
}
